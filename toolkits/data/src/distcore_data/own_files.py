"""Files that the user names and a command writes, also again, if it wrote them; and folders that it
made for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distcore_core.errors import DistcoreError, UserError
from distcore_data.os_errors import FULL, UNREADABLE


def begins_with(path: Path, beginning: str) -> bool:
    """Whether a file begins so. Raises OSError if it cannot be read."""
    expected = beginning.encode()
    with path.open("rb") as file:
        return file.read(len(expected)) == expected


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """The block writes a file that the user named with `--output`. Raises UserError if it cannot be
    written there, DistcoreError if the disk is full or failing."""
    try:
        yield
    except OSError as error:
        kind = DistcoreError if error.errno in FULL | UNREADABLE else UserError
        raise kind(
            f"{path} cannot be written: {error.strerror}. Give another file with --output."
        ) from error


@contextmanager
def as_before(folder: Path | str) -> Iterator[None]:
    """Remove, when the work fails, whichever folders of the path it made and left empty."""
    paths = (folder, *folder.parents) if isinstance(folder, Path) else ()
    missing = [each for each in paths if not each.exists()]
    try:
        yield
    except BaseException:
        for each in missing:
            try:
                each.rmdir()
            except OSError:  # something lies in it, or it was never made
                continue
        raise
