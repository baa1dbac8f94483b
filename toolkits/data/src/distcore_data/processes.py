"""Other processes, as Linux tells of them; anywhere else none is found."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def children_of(process: int) -> set[int]:
    """The ids of those that a process has started and that have not ended; of one that has ended
    itself, none."""
    found: set[int] = set()
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended since it was listed
            found |= {int(each) for each in file.read_text().split()}
    return found


def status_of(process: int) -> list[str]:
    """What /proc/…/stat says of it, from its third field on: its state (a letter), its parent, …
    Raises OSError if there is no such process."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
