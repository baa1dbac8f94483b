"""The cache of encoded columns, keyed by content: hit or miss, one build at a time, whole or not at all.

<cache_dir>/<key>/manifest.json          written last; sizes and digests of everything else
<cache_dir>/<key>/train/00000.parquet    the training rows among global rows [0, 262144)
<cache_dir>/<key>/rows/00000.parquet     the split of each of these rows
<cache_dir>/<key>.lock                   while a process builds it
<cache_dir>/<key>.building-<random>/     where it builds; left by a process that was killed, removed by the next
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore.cache.builder import CacheBuilder
from distcore.cache.locks import locked, locked_if_free
from distcore.cache.manifest import (
    CACHE_VERSION,
    REBUILD,
    SHARD_ROWS,
    check_files,
    delete_advice,
    digest_of,
    open_entry,
    read_manifest,
)
from distcore.cache.reader import CacheReader
from distcore.contracts import JSON, PluginRef
from distcore.digests import digest_open
from distcore.durable import BUILDING, FULL, REMOVING, building_name, commit_directory, explained, remove_directory
from distcore.errors import CacheError

if TYPE_CHECKING:
    from distcore.plugins import Plugins
    from distcore.progress import Progress

__all__ = [
    "CACHE_VERSION",
    "SHARD_ROWS",
    "Cache",
    "CacheBuilder",
    "CacheReader",
    "cache_key",
    "ensure_cache",
    "open_cache",
    "verify",
]

KEY = re.compile(r"[0-9A-Za-z_-]{1,128}", re.ASCII)
KEY_LENGTH = 40
LEFT_OVER = re.compile(
    rf"({KEY.pattern})(?:(?:{re.escape(BUILDING)}|{re.escape(REMOVING)})[0-9a-f]{{32}}|\.lock)", re.ASCII
)
"""Names of what a killed run leaves: folders under construction or being deleted, and the lock file."""

WHAT = "the cache"
ADVICE = "choose another folder with backend.cache_dir"
log = logging.getLogger("distcore")


@dataclass(frozen=True)
class Cache:
    """Where a committed cache lies: directory/key/manifest.json. Pickles; `open_cache` reads it in any process."""

    directory: str
    key: str

    @property
    def folder(self) -> Path:
        return Path(self.directory, self.key)


def cache_key(
    *,
    source_digest: str,
    raw: Mapping[str, str],
    features: Sequence[JSON],
    preprocessing: Mapping[str, Any],
    format: PluginRef,
) -> str:
    """The name of a cache: 40 hex digits from all that its bytes depend on, and from nothing else.

    source_digest: of the data's content, never of path or time. raw: {source column: how it is read}.
    features: type, column, role and data options of each, in the config's order. preprocessing: split, seed, sample.
    format: the cache format with its options. Raises ValueError or TypeError for what is not plain JSON.
    """
    return digest_of(
        {
            "version": CACHE_VERSION,
            "shard_rows": SHARD_ROWS,
            "source": source_digest,
            "raw": dict(raw),
            "features": list(features),
            "preprocessing": dict(preprocessing),
            "format": {"name": format.name, "options": dict(format.options)},
        }
    )[:KEY_LENGTH]


def ensure_cache(
    root: str | os.PathLike[str],
    key: str,
    format: PluginRef,
    build: Callable[[CacheBuilder], None],
    *,
    plugins: Plugins | None = None,
    progress: Progress | None = None,
    on_hit: Callable[[Cache], None] | None = None,
) -> Cache:
    """The cache `key` under `root`: the one that is there, or built by `build(builder)` and committed.

    A hit is a manifest that is whole and files of the right size (contents are checked when they are read). A damaged
    cache is built anew as a whole, with a warning. When another process builds the same cache, waits for it and hits.
    `build` must call `builder.finish`; whatever it raises passes through, and nothing of its work stays.
    Raises UserError where root cannot be written, CacheError where the disk is full; nothing is left in either case.
    """
    if not KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no cache key")
    cache = Cache(os.path.abspath(root), key)
    if _damage(cache) is None:
        return _hit(cache, on_hit)
    directory = Path(cache.directory)
    with ExitStack() as stack:
        stack.enter_context(explained(directory, WHAT, advice=ADVICE, only=FULL | {errno.EROFS}))
        with explained(directory, WHAT, advice=ADVICE):
            stack.enter_context(_made(directory))
            lock = directory / f"{key}.lock"
            stack.enter_context(locked(lock, on_wait=lambda: _say_waiting(cache, progress)))
        damage = _damage(cache)
        if damage is None:
            return _hit(cache, on_hit)
        if cache.folder.exists():
            log.warning("%s It is built again now.", damage.removesuffix(REBUILD).strip())
        _sweep(directory, key)
        _build(cache, format, build, plugins)
    return cache


def open_cache(cache: Cache, plugins: Plugins | None = None) -> CacheReader:
    """Open a committed cache. Raises CacheError where its manifest is missing, torn, foreign or names strange files."""
    manifest = read_manifest(cache.folder, cache.key)
    if plugins is None:
        from distcore.plugins import Plugins

        plugins = Plugins()
    return CacheReader(
        cache.folder, manifest, plugins.make("caches", manifest.format.name, dict(manifest.format.options))
    )


def verify(cache: Cache) -> int:
    """Read every byte of a cache and compare sha256; returns the bytes read.

    Raises CacheError naming the first file that differs."""
    manifest, total = read_manifest(cache.folder, cache.key), 0
    for entry in manifest.files():
        with open_entry(cache.folder, entry) as file:
            found = digest_open(file)
        if found.sha256 != entry.sha256 or found.bytes != entry.bytes:
            raise CacheError(
                f"{cache.folder / entry.file} of the cache is damaged: its sha256 should be {entry.sha256}, "
                f"but is {found.sha256}. {delete_advice(cache.folder)}"
            )
        total += found.bytes
    return total


# ------------------------------------------------------------------ inside


def _damage(cache: Cache) -> str | None:
    """Why the cache cannot be used as it lies there; None: it can."""
    try:
        check_files(cache.folder, read_manifest(cache.folder, cache.key))
    except CacheError as error:
        return str(error)
    return None


def _hit(cache: Cache, on_hit: Callable[[Cache], None] | None) -> Cache:
    if on_hit is not None:
        on_hit(cache)
    return cache


def _build(cache: Cache, format: PluginRef, build: Callable[[CacheBuilder], None], plugins: Plugins | None) -> None:
    folder = building_name(cache.folder)
    try:
        with explained(cache.directory, WHAT, advice=ADVICE):
            folder.mkdir()
        builder = CacheBuilder(folder, cache.key, format, plugins)
        try:
            build(builder)
        finally:
            builder.close()
        if not builder.finished:
            raise CacheError("The cache was not finished by what builds it. Report this.")
        with explained(cache.directory, WHAT, advice=ADVICE):
            commit_directory(folder, cache.folder, synced=builder.synced(), replace=True)
    finally:
        remove_directory(folder)


def _say_waiting(cache: Cache, progress: Progress | None) -> None:
    if progress is not None:
        progress.note = "waiting for another run that builds this cache"
    log.warning("Another run is building the cache %s; waiting for it.", cache.folder)


@contextmanager
def _made(directory: Path) -> Iterator[None]:
    """The directory, made with its parents where it is missing; those made are gone again if nothing came of it."""
    missing = []
    for path in (directory, *directory.parents):
        if path.exists():
            break
        missing.append(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for path in missing:
            try:
                path.rmdir()
            except OSError:
                break  # someone else uses it by now
        raise


def _sweep(directory: Path, key: str) -> None:
    """Remove what killed runs left: of this key, whose lock we hold, and of others whose lock is free."""
    left: dict[str, list[Path]] = {}
    for path in directory.iterdir():
        found = LEFT_OVER.fullmatch(path.name)
        # The folder may hold the user's own files: only names that nobody else would choose are ours.
        if found and (found[1] == key or len(found[1]) == KEY_LENGTH):
            left.setdefault(found[1], []).append(path)
    for owner, paths in left.items():
        if owner == key:
            _remove_all(paths)
            continue
        with locked_if_free(directory / f"{owner}.lock") as free:
            if free:
                _remove_all(paths)


def _remove_all(paths: list[Path]) -> None:
    for path in paths:
        if path.suffix != ".lock":  # that goes with the lock
            log.info("Removing %s, left by a run that was killed.", path)
            remove_directory(path)
