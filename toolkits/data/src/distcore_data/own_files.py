"""Files that a command may write again: those that it wrote."""

from __future__ import annotations

from pathlib import Path


def begins_with(path: Path, beginning: str) -> bool:
    """Whether a file begins so. Raises OSError if it cannot be read."""
    expected = beginning.encode()
    with path.open("rb") as file:
        return file.read(len(expected)) == expected
