"""Aligned columns of text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from distcore_data.printable import printable

WIDEST = 60
"""Characters of a column that others follow; a longer cell goes on in the next line."""


def table(rows: Sequence[Sequence[Any]]) -> str:
    """Rows of cells as aligned columns, two spaces between; the first row is the header."""
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    cells = [[*map(_lines, row[:-1]), [row[-1]]] for row in texts]
    widths = [
        max(len(line) for row in cells for line in row[column]) for column in range(len(cells[0]))
    ]
    lines = (
        "  ".join(line.ljust(width) for line, width in zip(line_of, widths, strict=True))
        for row in cells
        for line_of in zip_longest(*row, fillvalue="")
    )
    return "\n".join(line.rstrip() for line in lines)


def _lines(cell: str) -> list[str]:
    """What a cell shows, at its blanks in lines of at most WIDEST; words stay whole."""
    if len(cell) <= WIDEST:
        return [cell]
    return textwrap.wrap(cell, WIDEST, break_long_words=False, break_on_hyphens=False)
