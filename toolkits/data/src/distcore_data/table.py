"""Aligned columns of text, for terminals."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from distcore_data.printable import printable

WIDEST = 60
"""Characters of a column; a longer cell goes on in the next line."""


def table(rows: Sequence[Sequence[Any]], widest: int | None = WIDEST) -> str:
    """Rows of cells as aligned columns, two spaces between; the first row is the header.

    Args:
        rows: [rows][columns], any values.
        widest: Characters of a column that others follow; None: every cell stays in its line.
    """
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    cells = [[*(_lines(cell, widest) for cell in row[:-1]), [row[-1]]] for row in texts]
    widths = [
        max(_width(line) for row in cells for line in row[column])
        for column in range(len(cells[0]))
    ]
    lines = (
        "  ".join(
            line + " " * (width - _width(line)) for line, width in zip(line_of, widths, strict=True)
        )
        for row in cells
        for line_of in zip_longest(*row, fillvalue="")
    )
    return "\n".join(line.rstrip() for line in lines)


def _width(text: str) -> int:
    """Columns of a terminal: Chinese, Japanese and Korean characters have two, accents that are
    characters of their own none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(each) else 2 if east_asian_width(each) in ("W", "F") else 1 for each in text
    )


def _lines(cell: str, widest: int | None) -> list[str]:
    """What a cell shows, at its blanks in lines of at most `widest`; words stay whole."""
    if widest is None or len(cell) <= widest:
        return [cell]
    return textwrap.wrap(cell, widest, break_long_words=False, break_on_hyphens=False)
