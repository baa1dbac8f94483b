"""Build a cache in a bucket: every version in a folder of its own, and one conditional put that
says which one counts.

<cache_dir>/<key>/<version>/train/00000.parquet    put first, by whatever process encodes it; never
                                                   changed
<cache_dir>/<key>/manifest.json                    put last, on condition that there is none: names
                                                   the version
<cache_dir>/<key>/building.json                    while somebody builds: others wait for as long as
                                                   it keeps changing

Two builders at once do no harm: the put that comes second fails, and its builder deletes what it
wrote and reads the other's. The lease only saves them the work. A builder that died left files that
no manifest names; a later build of the key deletes those that are a day old by the store's own
clock.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from distcore_core.contracts import PluginRef
from distcore_core.errors import CacheError, StoreError
from distcore_core.io.digest import Digest, HashingFile
from distcore_data.cache.builder import CacheBuilder
from distcore_data.cache.files import CacheFiles
from distcore_data.cache.manifest import MANIFEST, REBUILD, VERSION
from distcore_data.cache.opening import damage_of
from distcore_data.os_errors import explained
from distcore_data.stores import Store
from distcore_data.stores.bucket import Bucket
from distcore_data.stores.lease import Lease
from distcore_data.stores.store import read_if_there
from distcore_data.temporaries import system_folder, temporary_folder

if TYPE_CHECKING:
    from distcore_core.registry.manager import Plugins

LEASE = "building.json"

DEAD_AFTER = 24 * 3600.0
"""Seconds by the store's clock after whose last write a version that no manifest names counts as
a dead builder's."""

NAMED = re.compile(rb'"folder": "([0-9a-f]{32})"')
"""The version in the bytes of a manifest that may be damaged."""

log = logging.getLogger("distcore")


class BucketBuilder(CacheBuilder):
    """A `CacheBuilder` whose files go to a bucket as they are written. A pickled copy does the same
    on any machine that reaches the bucket, and carries the credentials with it."""

    def __init__(
        self,
        store: Store,
        key: str,
        format: PluginRef,
        plugins: Plugins | None = None,
        folder: Path | None = None,
    ) -> None:
        """folder: this process's place for scratch."""
        super().__init__(folder or system_folder(), key, format, plugins)
        self.close()  # nothing is kept on this disk, so nothing is forced to it
        self._syncer = None
        self.store = store
        self.version = uuid.uuid4().hex
        self.manifest = b""

    def names(self) -> dict[str, int]:
        """Bytes of every object that was put or told of."""
        return {
            f"{self.key}/{self.version}/{each.file}": each.bytes for each in self._entries.values()
        }

    def _store(self, name: str, fill: Callable[[BinaryIO], None]) -> Digest:
        with ExitStack() as stack:
            with explained(
                system_folder(),
                "a shard on its way to the bucket",
                advice="point TMPDIR elsewhere",
            ):
                folder = stack.enter_context(temporary_folder("put"))
            path = folder / "shard"
            with HashingFile(path) as file:
                fill(cast(BinaryIO, file))
                digest = file.digest()
            self.store.put(f"{self.key}/{self.version}/{name}", path)
        return digest

    def _seal(self, manifest: bytes) -> None:
        self.manifest = manifest


def build_there(
    files: CacheFiles,
    key: str,
    format: PluginRef,
    build: Callable[[CacheBuilder], None],
    plugins: Plugins | None,
    *,
    on_wait: Callable[[], None],
) -> None:
    """Build the cache whose manifest is to lie beside `files`, unless another builder's counts and
    is whole.

    Raises StoreError if the bucket fails or cannot decide between builders."""
    store = files.store
    with Lease(store, f"{key}/{LEASE}") as lease:
        if not lease.acquire(until=lambda: damage_of(files, key) is None, on_wait=on_wait):
            return
        damage = damage_of(files, key)
        if damage is None:
            return
        damaged = read_if_there(store, f"{key}/{MANIFEST}")
        if damaged is not None:
            log.warning("%s It is built again now.", damage.removesuffix(REBUILD).strip())
        with suppress(StoreError):  # a courtesy, which may not be permitted here
            _sweep(store, key, lease)
        with temporary_folder("building") as folder:
            builder = BucketBuilder(store, key, format, plugins, folder)
            try:
                build(builder)
                counts = _commit(store, builder, damaged)
            except BaseException:
                _give_up(store, builder)
                raise
        if not counts:
            _give_up(store, builder)
            damage = damage_of(files, key)
            if damage is not None:
                raise CacheError(f"{damage} Another builder put it there while this one worked.")


# ------------------------------------------------------------------ inside


def _commit(store: Store, builder: BucketBuilder, damaged: bytes | None) -> bool:
    """Put the manifest, if everything that it names is there; True if it counts.

    damaged: the bytes of a manifest whose files are not whole, which gives way if it still is
        the same."""
    if not builder.finished:
        raise CacheError("The cache was not finished by what builds it. Report this.")
    found = store.list(f"{builder.key}/{builder.version}/")
    for name, size in builder.names().items():
        if name not in found or found[name].bytes != size:
            there = f"has {found[name].bytes} bytes" if name in found else "is not there"
            raise CacheError(
                f"{store.where(name)} was put with {size} bytes, and now {there}. Nothing was "
                "committed. Look who deletes or changes objects in that bucket, and run again."
            )
    manifest = f"{builder.key}/{MANIFEST}"
    if damaged is not None and read_if_there(store, manifest) == damaged:
        store.delete([manifest])
    if not store.create(manifest, builder.manifest):
        return False
    if damaged is not None and (old := NAMED.search(damaged)):
        with suppress(StoreError):
            store.delete(store.list(f"{builder.key}/{old[1].decode()}/"))
    return True


def _give_up(store: Store, builder: BucketBuilder) -> None:
    """Delete what this builder and its copies put, unless the manifest names it: an error or an
    interrupt may come when that is put already. What cannot be deleted is swept by a later
    build."""
    folder = f"{builder.key}/{builder.version}/"
    with suppress(StoreError, OSError):
        manifest = read_if_there(store, f"{builder.key}/{MANIFEST}") or b""
        if f'"{builder.version}"'.encode() in manifest:
            return
        store.delete(store.list(folder))
        if isinstance(store, Bucket):
            store.abort_uploads(folder.rstrip("/"))


def _sweep(store: Store, key: str, lease: Lease) -> None:
    """Delete what dead builders left: versions that no manifest names, and uploads that nobody
    finished."""
    found = store.list(f"{key}/")
    now = found[lease.name].modified if lease.name in found else 0.0
    versions: dict[str, list[str]] = {}
    for name in found:
        part = name.removeprefix(f"{key}/").partition("/")[0]
        if VERSION.fullmatch(part):
            versions.setdefault(part, []).append(name)
    named = read_if_there(store, f"{key}/{MANIFEST}") or b""
    for version, names in versions.items():
        newest = max(found[name].modified for name in names)
        if version.encode() not in named and newest < now - DEAD_AFTER:
            log.info("Removing %s, left by a run that was killed.", store.where(f"{key}/{version}"))
            store.delete(names)
    if isinstance(store, Bucket):
        store.abort_uploads(key, before=now - DEAD_AFTER)
