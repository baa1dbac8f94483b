"""The cache of encoded columns, keyed by content: hit or miss, whole or not at all.

In a folder one process builds at a time (`local.py`); in a bucket one put decides whose build
counts (`remote.py`). Whoever reads a cache needs its `Cache` alone, in whatever process.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import CACHE_FORMAT, JSON, CacheRef, PluginRef
from distcore_core.errors import CacheError, StoreError, UserError
from distcore_core.io.atomic import remove_directory
from distcore_core.io.digest import digest_open
from distcore_data.cache.builder import CacheBuilder
from distcore_data.cache.files import CacheFiles
from distcore_data.cache.local import build_here, sweep_lock
from distcore_data.cache.manifest import (
    CACHE_VERSION,
    KEY,
    KEY_LENGTH,
    RECIPE_LENGTH,
    SHARD_ROWS,
    digest_of,
)
from distcore_data.cache.opening import damage_of, files_of, with_metadata
from distcore_data.cache.reader import CacheReader
from distcore_data.stores import Credentials, Store, open_store
from distcore_data.stores.addresses import is_url, local_folder, store_kind

if TYPE_CHECKING:
    from distcore_core.progress import Progress
    from distcore_core.registry.manager import Plugins

__all__ = [
    "CACHE_VERSION",
    "SHARD_ROWS",
    "Cache",
    "CacheBuilder",
    "CacheReader",
    "Credentials",
    "cache_key",
    "ensure_cache",
    "examine",
    "open_cache",
    "remove",
    "verify",
]

log = logging.getLogger("distcore")


@dataclass(frozen=True)
class Cache(CacheRef):
    """Where a committed cache lies, and what it lies in. `open_cache` reads it in any process."""

    @classmethod
    def at(
        cls, root: str | os.PathLike[str], key: str, credentials: Credentials | None = None
    ) -> Cache:
        """The cache under a path or an address. Raises UserError for an address of no store."""
        folder = local_folder(root)
        if folder is not None:
            return cls(directory=str(folder), key=key)
        return cls(directory=os.fspath(root).rstrip("/"), key=key, credentials=credentials)

    @property
    def in_bucket(self) -> bool:
        return is_url(self.directory)

    @property
    def folder(self) -> Path:
        """The folder of one that lies on a disk. Raises ValueError for one in a bucket."""
        if self.in_bucket:
            raise ValueError(f"{self.where} is in a bucket")
        return Path(self.directory, self.key)

    @property
    def where(self) -> str:
        """The folder, or the address without secrets: for people."""
        return _files(self).home

    def __getstate__(self) -> object:
        if is_url(self.directory) and store_kind(self.directory) == "memory":
            raise UserError(
                f"{self.directory} is the memory of one process, and this work runs in several. "
                "Give a folder or a bucket in backend.cache_dir."
            )
        return super().__getstate__()

    def store(self) -> Store:
        """What it lies in."""
        return open_store(self.directory, self.credentials)


def _files(cache: CacheRef) -> CacheFiles:
    return CacheFiles(open_store(cache.directory, cache.credentials), f"{cache.key}/")


def cache_key(
    *,
    source_digest: str,
    raw: Mapping[str, str],
    features: Sequence[JSON],
    preprocessing: Mapping[str, Any],
    format: PluginRef,
    encoders: Mapping[str, str] | None = None,
) -> str:
    """The name of a cache: 40 hex digits from all that its bytes depend on, and from nothing else.

    The first RECIPE_LENGTH are of data and config; the rest of the versions of what encodes them,
    so that a cache that other versions made is seen to be one.

    source_digest: of the data's content, never of path or time. raw: {source column: how it is
        read}.
    features: type, column, role and data options of each, in the config's order. preprocessing:
        split, seed, sample.
    format: the cache format with its options. encoders: {what encodes: the version of its
    data}. Raises ValueError or TypeError for what is not plain JSON.
    """
    recipe = digest_of(
        {
            "source": source_digest,
            "raw": dict(raw),
            "features": list(features),
            "preprocessing": dict(preprocessing),
            "format": {"name": format.name, "options": dict(format.options)},
        }
    )
    versions = digest_of(
        {"version": CACHE_VERSION, "shard_rows": SHARD_ROWS, "encoders": dict(encoders or {})}
    )
    return recipe[:RECIPE_LENGTH] + versions[: KEY_LENGTH - RECIPE_LENGTH]


def ensure_cache(
    root: str | os.PathLike[str],
    key: str,
    format: PluginRef,
    build: Callable[[CacheBuilder], None],
    *,
    credentials: Credentials | None = None,
    plugins: Plugins | None = None,
    progress: Progress | None = None,
) -> Cache:
    """The cache `key` under `root`, a path or an address such as s3://bucket/folder: the one that
    is there, or built by `build(builder)` and committed.

    A hit is a manifest that is whole and files of the right size (contents are checked when they
    are read). A damaged cache is built anew as a whole, with a warning. When another process builds
    the same cache, waits for it and hits. `build` must call `builder.finish`; whatever it raises
    passes through, and nothing of its work stays. Raises UserError if root cannot be written,
    CacheError if the disk is full, StoreError if a bucket fails; nothing is left in any case (of a
    bucket that does not even let delete: nothing that is ever read).
    """
    if not KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no cache key")
    cache = Cache.at(root, key, credentials)
    files = _files(cache)

    def damage() -> str | None:
        return damage_of(files, key)

    def say_waiting() -> None:
        if progress is not None:
            progress.note = "waiting for another run that builds this cache"
        log.warning("Another run is building the cache %s; waiting for it.", files.home)

    if damage() is not None:
        if cache.in_bucket:
            from distcore_data.cache.remote import build_there

            build_there(files, key, format, build, plugins, on_wait=say_waiting)
        else:
            build_here(cache.folder, format, build, plugins, damage=damage, on_wait=say_waiting)
    elif not cache.in_bucket:
        sweep_lock(cache.folder)
    return cache


def open_cache(cache: CacheRef, plugins: Plugins | None = None) -> CacheReader:
    """Open a committed cache.

    Args:
        cache: Where it lies.
        plugins: Those that make its format; None: the installed ones.

    Raises:
        CacheError: Its manifest is missing, torn, foreign or names strange files.
        StoreError: A bucket fails.
    """
    files = _files(cache)
    manifest = with_metadata(files, files.manifest(cache.key))
    if plugins is None:
        from distcore_core.registry.manager import Plugins

        plugins = Plugins()
    format = plugins.make(CACHE_FORMAT, manifest.format.name, dict(manifest.format.options))
    return CacheReader(files_of(files, manifest), manifest, format)


def examine(cache: Cache) -> tuple[int, list[str]]:
    """Read every byte of a cache and compare sha256; returns the bytes read, and of each damaged
    file what is wrong.

    Raises CacheError if the manifest cannot be read, StoreError if a bucket fails."""
    files = _files(cache)
    manifest, total, damaged = files.manifest(cache.key), 0, []
    files = files_of(files, manifest)
    for entry in manifest.files():
        try:
            with files.opened(entry) as file:
                found = digest_open(file)
        except StoreError:
            raise
        except CacheError as error:
            damaged.append(str(error))
            continue
        total += found.bytes
        if found.sha256 != entry.sha256 or found.bytes != entry.bytes:
            damaged.append(
                f"{files.where(entry)} of the cache is damaged: its sha256 should be "
                f"{entry.sha256}, but is {found.sha256}. {files.advice()}"
            )
    return total, damaged


def verify(cache: Cache) -> int:
    """Read every byte of a cache and compare sha256; returns the bytes read.

    Raises CacheError naming the first file that differs."""
    total, damaged = examine(cache)
    if damaged:
        raise CacheError(damaged[0])
    return total


def remove(cache: Cache) -> None:
    """Remove a cache so that no reader ever finds half of it: in a bucket its manifest goes
    first."""
    if not cache.in_bucket:
        remove_directory(cache.folder)
        return
    store = cache.store()
    names = store.list(f"{cache.key}/")
    store.delete(sorted(names, key=lambda name: name.count("/")))
