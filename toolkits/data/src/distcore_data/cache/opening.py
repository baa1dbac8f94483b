"""From a manifest to its files: in a folder or fetched from a bucket, and whether they are
whole."""

from __future__ import annotations

from dataclasses import replace

from distcore_core.errors import CacheError, StoreError
from distcore_data.cache.fetching import FetchedFiles
from distcore_data.cache.files import CacheFiles
from distcore_data.cache.manifest import REBUILD, Manifest, parse_metadata
from distcore_data.stores.local import LocalStore


def damage_of(files: CacheFiles, key: str, metadata: bool = True) -> str | None:
    """Why the cache cannot be used as it lies there; None: it can. Raises StoreError if that cannot
    be told.

    metadata: read those that lie in a file of their own, too: without them nothing else can be
        read, or repaired."""
    try:
        manifest = files.manifest(key)
        files_of(files, manifest).check(manifest)
        if metadata:
            with_metadata(files, manifest)
    except StoreError:
        raise
    except CacheError as error:
        return str(error)
    return None


def with_metadata(files: CacheFiles, manifest: Manifest) -> Manifest:
    """The manifest with the metadata that lie beside it. Raises CacheError if these are damaged."""
    if manifest.large is None:
        return manifest
    found = files_of(files, manifest)
    found.notes = False  # they are not repaired: the cache is built again
    with found.open(manifest.large) as file:
        content = file.read()
    try:
        return replace(manifest, metadata=parse_metadata(content))
    except (ValueError, KeyError, TypeError) as error:
        raise CacheError(
            f"{found.where(manifest.large)} of the cache cannot be read ({error}). {REBUILD}"
        ) from error


def files_of(files: CacheFiles, manifest: Manifest) -> CacheFiles:
    """The files that a manifest names: beside it, or in the folder of its version."""
    folder = files.folder + (f"{manifest.version}/" if manifest.version is not None else "")
    if isinstance(files.store, LocalStore):
        return CacheFiles(files.store, folder, files.home)
    return FetchedFiles(files.store, folder, files.home)
