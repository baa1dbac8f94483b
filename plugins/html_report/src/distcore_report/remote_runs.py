"""Runs in a bucket: what tells of them, copied to a folder of this machine for as long as it is
looked at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from distcore_core.errors import UserError
from distcore_data.stores import NAME
from distcore_data.stores.lease import alive
from distcore_data.stores.run_sync import CHECKPOINTS, MODEL, RUNNING, Mirror
from distcore_data.temporaries import temporary_folder

if TYPE_CHECKING:
    from distcore_data.stores import Credentials


@contextmanager
def copied(
    address: str, credentials: Credentials | None, names: frozenset[str], depth: int
) -> Iterator[tuple[Path, Callable[[Path], bool]]]:
    """The folder, and whether somebody is at work in one of its folders.

    Models and checkpoints are not copied; that there are some is seen.

    Args:
        address: Of the folder of runs, or of one run.
        credentials: Of its bucket; None: what the environment gives.
        names: Of files that are copied.
        depth: So many folders below the address are looked into.

    Raises:
        UserError: Nothing lies there.
        StoreError: The bucket cannot be read.
    """
    mirror = Mirror.at(address, credentials)
    found = {
        name: stat
        for name, stat in mirror.store.list().items()
        if NAME.fullmatch(name) and ".." not in name.split("/")
    }
    if not found:
        raise UserError(
            f"{address}: there is no such folder. Give the address of the folder of runs, or of a "
            "run."
        )
    with temporary_folder("runs") as parent:
        root = Path(parent, address.rstrip("/").rpartition("/")[2])
        root.mkdir()
        for name, stat in found.items():
            path = PurePosixPath(name)
            if CHECKPOINTS in path.parts or MODEL in path.parts:
                _mark(root, path)
            elif path.name in names and len(path.parts) <= depth + 1:
                target = root / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # it was removed since it was listed
                    mirror.get_file(name, target, stat.bytes)
                    os.utime(target, (stat.modified, stat.modified))
        leases = [name for name in found if PurePosixPath(name).name == RUNNING]
        living = {root / PurePosixPath(name).parent for name in alive(mirror.store, leases)}
        yield root, living.__contains__


def _mark(root: Path, path: PurePosixPath) -> None:
    """An empty file in place of one of a checkpoint or a model."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch()
