"""What is wrong with a public function's arguments by themselves, told before anything is read: a
mistyped one, or name in its `skip`, with the nearest that there is."""

from __future__ import annotations

import difflib
import os
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from distcore.workflow.skips import NEVER_SAVED, SKIPS
from distcore_core.errors import UserError
from distcore_torch.modes import plain_torch

PLACES = (
    "model_path",
    "model_load_path",
    "model_resume_path",
    "output_directory",
    "output_file",
    "run",
    "one",
    "other",
)
"""Arguments that are paths or addresses."""

NAMES = ("experiment_name", "model_name")
"""Arguments that name a folder in the output directory together."""

P = ParamSpec("P")
R = TypeVar("R")


def told(function: Callable[P, R]) -> Callable[P, R]:
    """The function. Called with an argument that it has not, it raises TypeError with the nearest
    that it has: Python itself says so from 3.13 on; with a value that cannot be right, UserError.
    What the caller has set torch to changes nothing (`plain_torch`). Editors and
    `inspect.signature` see the function's own arguments."""
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    left_out = {name for name, value in (function.__kwdefaults__ or {}).items() if value is None}

    @wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> R:
        for name in named:
            if name not in known:
                hint = _meant(name, known) or f"It has: {', '.join(known)}."
                raise TypeError(f"distcore.{function.__name__} has no argument {name!r}. {hint}")
        given = {**dict(zip(known, arguments, strict=False)), **named}
        check(
            {
                name: value
                for name, value in given.items()
                if value is not None or name not in left_out
            }
        )
        with plain_torch():
            return function(*arguments, **named)

    return called


def check(given: Mapping[str, Any]) -> None:
    """Raise UserError if an argument of one of these names has a value that it cannot have."""
    for name, value in given.items():
        if name == "skip":
            _check_skips(value)
        elif name in PLACES and not isinstance(value, str | os.PathLike):
            raise UserError(
                f"{name} is {reprlib.repr(value)}, and no path or address. Give it as a str or a "
                "pathlib.Path, such as 'results/experiment_run'."
            )
        elif name in NAMES:
            _check_name(name, value)


def _check_name(name: str, value: Any) -> None:
    """Raise UserError if a value is no part of a folder's name: results would come beside the
    output directory."""
    if not isinstance(value, str):
        raise UserError(f"{name} is {reprlib.repr(value)}, and no name. Give it as a str.")
    if value in (".", "..") or any(mark in value for mark in "/\\\0"):
        raise UserError(
            f"--{name} {value!r} is no name of a folder in the output directory: it holds '..', a "
            "slash or a backslash. Give a plain name, and the folder around it with "
            "--output_directory."
        )


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
