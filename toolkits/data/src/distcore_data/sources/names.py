"""What messages call a file whose path says nothing to people: the copy of standard input."""

from __future__ import annotations

import os

STANDARD_INPUT = "standard input"
"""What its copy is called, and behind it the format in brackets."""

_names: dict[str, str] = {}


def call(path: str | os.PathLike[str], name: str) -> None:
    """Have this process call the file so."""
    _names[os.path.abspath(path)] = name


def name_of(path: str | os.PathLike[str]) -> str:
    """The path itself, unless it is called otherwise."""
    text = os.fspath(path)
    return _names.get(os.path.abspath(text), text) if _names else text
