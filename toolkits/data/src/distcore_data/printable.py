"""Text of others, such as a column's name, in a line for people: what would break the line, hide in
it or command a terminal is spelled out."""

from __future__ import annotations

import re
from collections.abc import Sequence

CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def printable(text: str, keep: str = "") -> str:
    r"""The text, with Python's escapes (`\n`, `\x1b`) of line ends, tabs, other control characters,
    marks that turn the direction, and lone surrogates.

    Files that machines read (csv, JSON, YAML) have escapes of their own, and names as they are.

    Args:
        text: In any script.
        keep: Control characters that stay, such as the line ends of a text of several lines.
    """
    if text.isprintable():
        return text
    return CONTROLS.sub(lambda found: _spelled(found[0], keep), text)


def listed(names: Sequence[str], most: int) -> str:
    """The first of the names, each printable, and how many more there are: a table may have
    thousands of columns."""
    more = len(names) - most
    return ", ".join(map(printable, names[:most])) + (f" and {more:,} more" if more > 0 else "")


def _spelled(character: str, keep: str) -> str:
    return character if character in keep else repr(character)[1:-1]
