"""What is wrong with a public function's arguments by themselves, told before anything is read: a
mistyped one, or name in its `skip`, with the nearest that there is."""

from __future__ import annotations

import difflib
import os
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from numbers import Integral
from pathlib import Path
from types import UnionType
from typing import Any, ParamSpec, TypeVar

from distcore.workflow.skips import NEVER_SAVED, SKIPS
from distcore.workflow.working_directory import check_working_directory
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

SWITCHES = ("trust", "overwrite")
"""Arguments that are True or False: a word such as "no" would be taken for True."""

VIEWS = ("interactive", "auto", "bars", "lines", "none")

KINDS: Mapping[str, tuple[type | UnionType, str]] = {
    "backend": (str | Mapping, "name of a backend. Give it as a str, such as 'local'"),
    "data_format": (str, "name of a format. Give it as a str, such as 'csv'"),
    "keep": (Collection, "list of columns. Give their names, such as ['id']"),
}
"""What other arguments are, and how to give them."""

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
                hint = _meant(name, known) or _of_config(name, known)
                hint = hint or f"It has: {', '.join(known)}."
                raise TypeError(f"distcore.{function.__name__} has no argument {name!r}. {hint}")
        check_working_directory()
        call: Any = function  # whose arguments stay what they are for editors
        places = [_path(value) for value in arguments]
        others = {name: _path(value) for name, value in named.items()}
        given = {**dict(zip(known, places, strict=False)), **others}
        check(
            {
                name: value
                for name, value in given.items()
                if value is not None or name not in left_out
            }
        )
        with plain_torch():
            result: R = call(*places, **others)
            return result

    return called


def _path(value: Any) -> Any:
    """The value; what is another path than one of pathlib as one, or as the address that it is: a
    path of a user's class may be shown as anything."""
    if not isinstance(value, os.PathLike) or isinstance(value, Path):
        return value
    text = os.fsdecode(value)
    return text if "://" in text else Path(text)


def check(given: Mapping[str, Any]) -> None:
    """Raise UserError if an argument of one of these names has a value that it cannot have."""
    for name, value in given.items():
        if name == "skip":
            _check_skips(value)
        elif name in PLACES:
            _check_place(name, value)
        elif name in NAMES:
            _check_name(name, value)
        elif name in SWITCHES and not isinstance(value, bool):
            raise UserError(f"{name} is {reprlib.repr(value)}. Give True or False.")
        elif name == "view" and value not in VIEWS:
            hint = _meant(str(value), VIEWS) or f"There are: {', '.join(VIEWS)}."
            raise UserError(f"view: there is no {reprlib.repr(value)}. {hint}")
        elif name == "steps":
            _check_steps(value)
        elif name in KINDS:
            kind, what = KINDS[name]
            if not isinstance(value, kind) or (name == "keep" and isinstance(value, str | bytes)):
                raise UserError(f"{name} is {reprlib.repr(value)}, and no {what}.")


def _check_place(name: str, value: Any) -> None:
    """Raise UserError if a value cannot be a path or an address."""
    if not isinstance(value, str | os.PathLike):
        raise UserError(
            f"{name} is {reprlib.repr(value)}, and no path or address. Give it as a str or a "
            "pathlib.Path, such as 'results/experiment_run'."
        )
    if "\0" in str(value):
        raise UserError(f"{name} {str(value)!r} holds a NUL, which no path does. Leave it out.")


def _check_steps(value: Any) -> None:
    """Raise UserError if a value is no pair of steps."""
    whole = isinstance(value, tuple | list) and len(value) == 2
    if not whole or not all(
        (isinstance(each, Integral) and int(each) >= 0) or (number and each is None)
        for number, each in enumerate(value)
    ):
        raise UserError(
            f"steps is {reprlib.repr(value)}, and no pair of steps. Give the first and the last, "
            "such as (0, 20), or (20, None) for all from there."
        )


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
    if isinstance(given, str | Mapping) or not isinstance(given, Collection):
        raise UserError(
            f"skip should be a collection of names, such as {{'skip_save_model'}}, not {given!r}."
        )
    known = [*SKIPS, *NEVER_SAVED]
    for name in given:
        if name not in known:
            hint = _meant(str(name), known) or f"There are: {', '.join(SKIPS)}."
            raise UserError(f"skip: there is no {name!r}. {hint}")


def _of_config(name: str, known: Collection[str]) -> str:
    """Where the config has what is no argument, such as `epochs`; "" if it has not."""
    from distcore.config.overrides import belongs_to

    path = belongs_to(name) if "config" in known else None
    return f"It is the config's, as {path}." if path else ""


def _meant(name: str, known: Iterable[str]) -> str:
    """Which of the known names was probably meant, as a question; "" if none is near."""
    words = [each for each in known if name in each.split("_")]  # `seed`: random_seed
    near = difflib.get_close_matches(name, list(known), n=1) or words[:1]
    return f"Did you mean {near[0]!r}?" if near else ""
