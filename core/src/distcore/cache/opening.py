"""From a manifest to its files: in a folder or fetched from a bucket, and whether they are whole."""

from __future__ import annotations

from distcore.cache.fetching import FetchedFiles
from distcore.cache.files import CacheFiles
from distcore.cache.manifest import Manifest
from distcore.errors import CacheError, StoreError
from distcore.stores.local import LocalStore


def damage_of(files: CacheFiles, key: str) -> str | None:
    """Why the cache cannot be used as it lies there; None: it can. Raises StoreError where that cannot be told."""
    try:
        manifest = files.manifest(key)
        files_of(files, manifest).check(manifest)
    except StoreError:
        raise
    except CacheError as error:
        return str(error)
    return None


def files_of(files: CacheFiles, manifest: Manifest) -> CacheFiles:
    """The files that a manifest names: beside it, or in the folder of its version."""
    folder = files.folder + (f"{manifest.version}/" if manifest.version is not None else "")
    if isinstance(files.store, LocalStore):
        return CacheFiles(files.store, folder, files.home)
    return FetchedFiles(files.store, folder, files.home)
