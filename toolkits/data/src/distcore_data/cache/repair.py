"""Make the damaged files of a cache again from the data: the same bytes, under the same names; all
others stay.

What a shard holds is a function of its rows and of the metadata in the manifest, so a file that is
made again must have the sha256 that the manifest says; if it has another (another version of the
format's library), the cache is built anew as a whole. A file is put in its place whole, in a folder
by a rename and in a bucket by a put, and the manifest never changes: a run that is killed in the
middle leaves each file damaged or right.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from distcore_core.contracts import PluginRef
from distcore_core.errors import CacheError, StoreError
from distcore_core.io.atomic import move_file, remove_directory
from distcore_core.io.digest import Digest, HashingFile
from distcore_core.io.temporaries import building_name
from distcore_data.cache import Cache, remove
from distcore_data.cache.builder import ADVICE, CacheBuilder
from distcore_data.cache.files import DAMAGED, CacheFiles, noted_damage
from distcore_data.cache.manifest import REBUILD, FileEntry, Manifest
from distcore_data.cache.opening import files_of, with_metadata
from distcore_data.cache.remote import LEASE, BucketBuilder
from distcore_data.locks import locked
from distcore_data.os_errors import FULL, explained
from distcore_data.stores import Store
from distcore_data.stores.lease import Lease
from distcore_data.stores.local import LocalStore
from distcore_data.temporaries import temporary_folder

if TYPE_CHECKING:
    from distcore_core.registry.manager import Plugins

CHECKED_BYTES = 1 << 30
"""A cache in a folder of no more bytes is hashed whole before it is used, which takes a tenth of a
second. Of others sizes are looked at, and what readers found damaged."""

WHAT = "the cache's repair"
log = logging.getLogger("distcore")

Make = Callable[[CacheBuilder, Manifest, Collection[int]], None]
"""Write again, through the builder, the shards of these numbers, of all splits."""


class Different(CacheError):
    """A file that is made again has other bytes."""


def repair(cache: Cache, make: Make, plugins: Plugins | None = None) -> int:
    """Make again whatever files of the cache are missing or damaged; returns how many.

    0 also if there is no cache, or none with a manifest: that is built as a whole. Raises what
    `make` raises, CacheError if the disk is full, StoreError if a bucket fails."""
    store = cache.store()
    manifest, damaged = _damaged(cache)
    if not damaged:
        _forget(cache, store, manifest)
        return 0

    def on_wait() -> None:
        log.warning("Another run is at work on the cache %s; waiting for it.", cache.where)

    with ExitStack() as stack:
        if isinstance(store, LocalStore):
            with explained(store.root, WHAT, advice=ADVICE):
                stack.enter_context(locked(store.root / f"{cache.key}.lock", on_wait=on_wait))
        else:
            lease = stack.enter_context(Lease(store, f"{cache.key}/{LEASE}"))
            if not lease.acquire(until=lambda: not _damaged(cache)[1], on_wait=on_wait):
                return 0
        manifest, damaged = _damaged(cache)  # another run may have repaired it
        if not damaged or manifest is None:
            return 0
        for why in damaged.values():
            log.warning("%s It is made again from the data.", why.removesuffix(REBUILD).strip())
        try:
            _repaired(cache, store, manifest, frozenset(damaged), make, plugins)
        except Different as error:
            log.warning("%s The cache is built again as a whole.", error)
            remove(cache)
            return 0
    return len(damaged)


# ------------------------------------------------------------------ what is damaged


def _damaged(cache: Cache) -> tuple[Manifest | None, dict[str, str]]:
    """{file: what is wrong with it} of a cache with a manifest."""
    files = CacheFiles(cache.store(), f"{cache.key}/")
    try:
        manifest = with_metadata(files, files.manifest(cache.key))
    except StoreError:
        raise
    except CacheError:
        return None, {}
    files = files_of(files, manifest)
    files.notes = False
    entries = manifest.files()
    if isinstance(files.store, LocalStore):
        if any((cache.folder / entry.part).is_symlink() for entry in entries):
            return manifest, {}  # nothing is written through a link
        whole = sum(entry.bytes for entry in entries) <= CHECKED_BYTES
        suspects: Collection[str] = (
            {entry.file for entry in entries} if whole else noted_damage(files)
        )
        return manifest, _found(files, entries, suspects)
    there = files.store.list(files.folder)
    suspects = noted_damage(files) if files.folder + DAMAGED in there else ()
    gone = [
        entry
        for entry in entries
        if getattr(there.get(files.folder + entry.file), "bytes", None) != entry.bytes
    ]
    return manifest, _found(
        files, [*gone, *(each for each in entries if each.file in suspects)], suspects
    )


def _found(
    files: CacheFiles, entries: Sequence[FileEntry], suspects: Collection[str]
) -> dict[str, str]:
    """The damaged files among these. suspects: those whose content is looked at; of the others,
    the size."""
    found = {}
    for entry in entries:
        try:
            (files.open if entry.file in suspects else files.opened)(entry).close()
        except StoreError:
            raise
        except CacheError as error:
            found[entry.file] = str(error).removesuffix(files.advice()).strip()
    return found


# ------------------------------------------------------------------ the repair


class _Repairing(CacheBuilder):
    """A builder that keeps no file but those that are damaged, and each only with the bytes that
    it should have."""

    expected: Mapping[str, FileEntry]
    damaged: frozenset[str]

    def _store(self, name: str, fill: Callable[[BinaryIO], None]) -> Digest:
        entry = self.expected.get(name)
        if entry is None:
            raise Different(
                f"The data now give a file {name}, which the cache {self.key} does not have."
            )
        if name not in self.damaged:
            return Digest(entry.bytes, entry.xxh3, entry.sha256)

        def fill_and_compare(file: BinaryIO) -> None:
            fill(file)
            found = cast(HashingFile, file).digest().sha256
            if found != entry.sha256:
                raise Different(
                    f"{name} of the cache {self.key} was made again with other bytes (sha256 "
                    f"{found})."
                )

        return super()._store(name, fill_and_compare)


class _BucketRepair(_Repairing, BucketBuilder):
    """Files are put where the damaged ones lie."""


def _repaired(
    cache: Cache,
    store: Store,
    manifest: Manifest,
    damaged: frozenset[str],
    make: Make,
    plugins: Plugins | None,
) -> None:
    shards = {entry.index for entry in manifest.files() if entry.file in damaged}
    expected = {entry.file: entry for entry in manifest.files()}
    if isinstance(store, LocalStore):
        _repaired_here(
            cache.folder,
            manifest.format,
            expected,
            damaged,
            lambda b: make(b, manifest, shards),
            plugins,
        )
        _forget(cache, store, manifest)
        return
    with temporary_folder("repair") as folder:
        builder = _BucketRepair(store, cache.key, manifest.format, plugins, folder)
        builder.version, builder.expected, builder.damaged = manifest.version, expected, damaged
        make(builder, manifest, shards)
    _check_made(builder, damaged)
    _forget(cache, store, manifest)


def _repaired_here(
    final: Path,
    format: PluginRef,
    expected: Mapping[str, FileEntry],
    damaged: frozenset[str],
    make: Callable[[CacheBuilder], None],
    plugins: Plugins | None,
) -> None:
    folder = building_name(final)
    with explained(final.parent, WHAT, advice=ADVICE, only=FULL | {errno.EROFS}):
        folder.mkdir()
        try:
            builder = _Repairing(folder, final.name, format, plugins)
            builder.expected, builder.damaged = expected, damaged
            try:
                make(builder)
            finally:
                builder.close()
            _check_made(builder, damaged)
            builder.sync()
            for name in sorted(damaged):
                try:
                    move_file(folder / name, final / name)
                except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
                    raise Different(
                        "Something that is no file of the cache is in the way of "
                        f"{error.filename2}."
                    ) from error
        finally:
            remove_directory(folder)


def _forget(cache: Cache, store: Store, manifest: Manifest | None) -> None:
    """What readers found damaged is so no longer."""
    if manifest is not None:
        files = files_of(CacheFiles(store, f"{cache.key}/"), manifest)
        with suppress(OSError, StoreError):  # if nobody may write, nobody noted anything
            if noted_damage(files):
                store.delete([files.folder + DAMAGED])


def _check_made(builder: CacheBuilder, damaged: Collection[str]) -> None:
    missing = sorted(set(damaged) - builder.synced())
    if missing:
        raise Different(
            f"The data now give no file {missing[0]}, which the cache {builder.key} has."
        )
