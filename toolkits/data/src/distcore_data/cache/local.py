"""Build a cache in a folder of this machine: one process at a time, in a folder of its own, renamed
as a whole.

<cache_dir>/<key>/manifest.json          written last; sizes and digests of everything else
<cache_dir>/<key>/train/00000.parquet    the training rows among global rows [0, 262144)
<cache_dir>/<key>/rows/00000.parquet     the split of each of these rows
<cache_dir>/<key>.lock                   while a process builds it
<cache_dir>/<key>.building-<random>/     where it builds; left by a process that was killed, removed
                                         by the next
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from distcore_core.contracts import PluginRef
from distcore_core.errors import CacheError, UserError
from distcore_core.io.atomic import commit_directory, remove_directory
from distcore_core.io.temporaries import BUILDING, REMOVING, building_name
from distcore_data.cache.builder import ADVICE, CacheBuilder
from distcore_data.cache.manifest import KEY, REBUILD
from distcore_data.locks import locked, locked_if_free
from distcore_data.os_errors import FULL, explained
from distcore_data.own_files import as_before

if TYPE_CHECKING:
    from distcore_core.registry.manager import Plugins

LEFT_OVER = re.compile(
    rf"({KEY.pattern})(?:(?:{re.escape(BUILDING)}|{re.escape(REMOVING)})[0-9a-f]{{32}}|\.lock)",
    re.ASCII,
)
"""Names of what a killed run leaves: folders under construction or being deleted, and the lock
file."""

WHAT = "the cache"
log = logging.getLogger("distcore")


def build_here(
    folder: Path,
    format: PluginRef,
    build: Callable[[CacheBuilder], None],
    plugins: Plugins | None,
    *,
    damage: Callable[[], str | None],
    on_wait: Callable[[], None],
) -> None:
    """Build the cache that `folder` is to hold, unless another process did while we waited; its
    name is the key.

    damage: why what lies there cannot be used, or None; asked again once the lock is held."""
    directory, key = folder.parent, folder.name
    with ExitStack() as stack:
        stack.enter_context(explained(directory, WHAT, advice=ADVICE, only=FULL | {errno.EROFS}))
        with explained(directory, WHAT, advice=ADVICE):
            stack.enter_context(as_before(directory))
            directory.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(directory / f"{key}.lock", on_wait=on_wait))
        found = damage()
        if found is None:
            return
        if folder.exists():
            refuse_closed(folder)
            log.warning("%s It is built again now.", found.removesuffix(REBUILD).strip())
        _sweep(directory, key)
        _build(folder, format, build, plugins)


def refuse_closed(folder: Path) -> None:
    """Raise UserError if a cache that cannot be used is there and this user may not read all of it:
    it may be whole, and a new one could not always take the place of somebody else's."""
    if folder.exists() and (closed := closed_part(folder)) is not None:
        raise UserError(
            f"The cache {folder} is there, and this user may not read {closed} (permission "
            f"denied). Nothing was changed. Make the cache readable, or {ADVICE}."
        )


def closed_part(folder: Path) -> Path | None:
    """What of a cache this user may not read; None if it is open."""
    for path in (folder, *sorted(folder.rglob("*"))):
        if not os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK):
            return path
    return None


def sweep_lock(folder: Path) -> None:
    """Remove the lock of a build that was killed right after it had committed its cache; a hit
    takes none."""
    lock = folder.with_name(f"{folder.name}.lock")
    with suppress(OSError):  # somebody else's folder, perhaps
        if lock.exists():
            with locked_if_free(lock):  # whoever holds it removes it
                pass


# ------------------------------------------------------------------ inside


def _build(
    final: Path, format: PluginRef, build: Callable[[CacheBuilder], None], plugins: Plugins | None
) -> None:
    folder = building_name(final)
    try:
        with explained(final.parent, WHAT, advice=ADVICE):
            folder.mkdir()
        builder = CacheBuilder(folder, final.name, format, plugins)
        try:
            build(builder)
        finally:
            builder.close()
        if not builder.finished:
            raise CacheError("The cache was not finished by what builds it. Report this.")
        with explained(final.parent, WHAT, advice=ADVICE):
            commit_directory(folder, final, synced=builder.synced())
    finally:
        remove_directory(folder)


def _sweep(directory: Path, key: str) -> None:
    """Remove what killed runs left: of this key, whose lock we hold, and of others whose lock is
    free."""
    left: dict[str, list[Path]] = {}
    for path in directory.iterdir():
        if found := LEFT_OVER.fullmatch(path.name):
            left.setdefault(found[1], []).append(path)
    for owner, paths in left.items():
        try:
            if owner == key:
                _remove_all(paths)
                continue
            with locked_if_free(directory / f"{owner}.lock") as free:
                if free:
                    _remove_all(paths)
        except OSError as error:  # it does no harm
            log.info("What a killed run left of %s cannot be removed: %s.", owner, error)


def _remove_all(paths: list[Path]) -> None:
    for path in paths:
        if path.suffix != ".lock":  # that goes with the lock
            log.info("Removing %s, left by a run that was killed.", path)
            remove_directory(path)
