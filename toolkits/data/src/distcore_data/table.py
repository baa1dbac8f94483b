"""Aligned columns of text, for terminals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from distcore_data.printable import printable

WIDEST = 60
"""Columns of the terminal; a longer cell goes on in the next line."""


def table(rows: Sequence[Sequence[Any]], widest: int | None = WIDEST) -> str:
    """Rows of cells as aligned columns, two spaces between; the first row is the header.

    Args:
        rows: [rows][columns], any values.
        widest: Of a column that others follow; None: every cell stays in its line.
    """
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    cells = [[*(_lines(cell, widest) for cell in row[:-1]), [row[-1]]] for row in texts]
    widths = [
        max(width_of(line) for row in cells for line in row[column])
        for column in range(len(cells[0]))
    ]
    lines = (
        "  ".join(
            line + " " * (width - width_of(line))
            for line, width in zip(line_of, widths, strict=True)
        )
        for row in cells
        for line_of in zip_longest(*row, fillvalue="")
    )
    return "\n".join(line.rstrip() for line in lines)


def width_of(text: str) -> int:
    """Columns of a terminal: Chinese, Japanese and Korean characters have two, accents that are
    characters of their own none."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width, normalize

    return sum(
        1 + (east_asian_width(each) in ("W", "F"))
        for each in normalize("NFC", text)  # which makes one of the parts of a Korean syllable
        if category(each) not in ("Mn", "Me", "Cf")
    )


def _lines(cell: str, widest: int | None) -> list[str]:
    """What a cell shows, at its blanks in lines of at most `widest`; words stay whole."""
    if widest is None or width_of(cell) <= widest:
        return [cell]
    lines: list[str] = []
    for word in cell.split():
        if lines and width_of(lines[-1]) + 1 + width_of(word) <= widest:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
