"""A mistyped argument of a public function is told with the nearest one that the function has."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

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
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(known)}."
                raise TypeError(f"distcore.{function.__name__} has no argument {name!r}. {hint}")
        return function(*arguments, **named)

    return called
