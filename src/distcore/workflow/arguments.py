"""A mistyped argument of a public function, or name in its `skip`, is told with the nearest one
that there is."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from distcore.workflow.skips import NEVER_SAVED, SKIPS
from distcore_core.errors import UserError

P = ParamSpec("P")
R = TypeVar("R")


def told(function: Callable[P, R]) -> Callable[P, R]:
    """The function. Called with an argument that it has not, it raises TypeError with the nearest
    that it has: Python itself says so from 3.13 on. Editors and `inspect.signature` see the
    function's own arguments."""
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> R:
        for name in named:
            if name not in known:
                hint = _meant(name, known) or f"It has: {', '.join(known)}."
                raise TypeError(f"distcore.{function.__name__} has no argument {name!r}. {hint}")
        if "skip" in named:
            _check_skips(named["skip"])
        return function(*arguments, **named)

    return called


def _check_skips(given: Any) -> None:
    """Raise UserError if `skip` is no collection, or names what nobody saves: it would be saved."""
    if isinstance(given, str) or not isinstance(given, Collection):
        raise UserError(
            f"skip should be a collection of names, such as {{'skip_save_model'}}, not {given!r}."
        )
    known = [*SKIPS, *NEVER_SAVED]
    for name in given:
        if name not in known:
            hint = _meant(str(name), known) or f"There are: {', '.join(SKIPS)}."
            raise UserError(f"skip: there is no {name!r}. {hint}")


def _meant(name: str, known: Iterable[str]) -> str:
    """Which of the known names was probably meant, as a question; "" if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean {near[0]!r}?" if near else ""
