"""Runs in a bucket: what tells of them, copied to a folder of this machine for as long as it is
looked at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from distcore_core.errors import UserError
from distcore_data.stores import NAME, Stat
from distcore_data.stores.lease import alive
from distcore_data.stores.run_sync import CHECKPOINTS, MODEL, RUNNING, Mirror
from distcore_data.temporaries import temporary_folder
from distcore_search.vouched import DIGESTS

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
    found = _listed(mirror)
    if leases := _leases(found):
        # To see who is at work takes seconds, in which a run may come to its end: its files are
        # those of afterwards.
        dead = leases - alive(mirror.store, leases)
        found = _listed(mirror)
        leases = _leases(found) - dead
    if not found:
        raise UserError(
            f"{address}: there is no such folder. Give the address of the folder of runs, or of a "
            "run."
        )
    with temporary_folder("runs") as parent:
        root = Path(parent, address.rstrip("/").rpartition("/")[2])
        root.mkdir()
        # Digests are put before the scores that they vouch for, and know those of before, too.
        for name, stat in sorted(found.items(), key=lambda each: each[0].endswith(DIGESTS)):
            path = PurePosixPath(name)
            if CHECKPOINTS in path.parts or MODEL in path.parts:
                _mark(root, path)
            elif path.name in names and len(path.parts) <= depth + 1:
                target = root / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # it was removed since it was listed
                    mirror.get_file(name, target, stat.bytes)
                    os.utime(target, (stat.modified, stat.modified))
        yield root, {root / PurePosixPath(name).parent for name in leases}.__contains__


def _listed(mirror: Mirror) -> dict[str, Stat]:
    return {
        name: stat
        for name, stat in mirror.store.list().items()
        if NAME.fullmatch(name) and ".." not in name.split("/")
    }


def _leases(names: Iterable[str]) -> set[str]:
    return {name for name in names if PurePosixPath(name).name == RUNNING}


def _mark(root: Path, path: PurePosixPath) -> None:
    """An empty file in place of one of a checkpoint or a model."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch()
