"""The files of one committed cache, in a folder or a bucket: opened by what the manifest says of
each, and checked."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO

from distcore_core.errors import CacheError, StoreError
from distcore_data.cache.manifest import MANIFEST, REBUILD, FileEntry, Manifest, parse_manifest
from distcore_data.fast_digest import fast_digest
from distcore_data.os_errors import FULL
from distcore_data.seals import parse_json
from distcore_data.stores import Seen, Store

_verified: set[tuple[int, ...]] = set()
"""Local files whose bytes this process has hashed and found whole: device, inode, size, time of
change, hash."""


DAMAGED = "damaged.json"
"""Beside the files: names of those that a reader found damaged, for the run that repairs them."""


class CacheFiles:
    """Files below a folder of a store ("<key>/", or "" for the store itself), for one reader.

    home: the cache's folder, for people. most_bytes: what a reader may keep open at once; None:
        any number."""

    most_bytes: int | None = None
    notes = True
    """Whether damage that is met is noted beside the files, for the run that repairs."""

    def __init__(self, store: Store, folder: str, home: str | None = None) -> None:
        self.store = store
        self.folder = folder
        self.home = home or (store.where(folder).rstrip("/") if folder else store.url)

    def manifest(self, key: str) -> Manifest:
        """Read and check the manifest. Raises CacheError: no such cache, or what is wrong with
        it."""
        name = self.folder + MANIFEST
        where = self.store.where(name)
        try:
            return parse_manifest(self.store.read(name), key, where)
        except FileNotFoundError:
            raise CacheError(
                f"There is no cache at {self.home}: {MANIFEST} is missing. {REBUILD}"
            ) from None
        except OSError as error:
            raise CacheError(f"{where} cannot be read ({error}). {REBUILD}") from error

    def where(self, entry: FileEntry) -> str:
        """The whole path or address of a file."""
        return self.store.where(self.folder + entry.file)

    def opened(self, entry: FileEntry, seen: Seen | None = None) -> BinaryIO:
        """A file of the size that the manifest says. seen: see `Store.open`. Raises CacheError
        naming file and what differs."""
        where = self.where(entry)
        try:
            file = self.store.open(self.folder + entry.file, entry.bytes, seen)
        except FileNotFoundError:
            raise CacheError(
                f"{where} of the cache is missing; {entry.bytes} bytes were expected. {REBUILD}"
            ) from None
        except OSError as error:
            if error.errno in FULL:  # the disk that it was fetched to
                raise
            raise CacheError(f"{where} of the cache cannot be read ({error}). {REBUILD}") from error
        found = os.fstat(file.fileno()).st_size
        if found != entry.bytes:
            file.close()
            raise CacheError(
                f"{where} of the cache is damaged: {entry.bytes} bytes were expected, {found} "
                f"found. {REBUILD}"
            )
        return file

    def open(self, entry: FileEntry) -> BinaryIO:
        """A file whose bytes are those of the manifest, at its start. Hashed once a process.
        Raises CacheError."""
        file = self.opened(entry)
        try:
            status = os.fstat(file.fileno())
            identity = (
                status.st_dev,
                status.st_ino,
                status.st_size,
                status.st_ctime_ns,  # no copying tool sets it back
                int(entry.xxh3, 16),
            )
            if identity not in _verified:
                self.compare(file, entry)
                _verified.add(identity)
        except BaseException:
            file.close()
            raise
        return file

    def compare(self, file: BinaryIO, entry: FileEntry, found: str | None = None) -> None:
        """Hash an open file, and leave it at its start. Raises CacheError if the bytes are others.

        found: the xxh3 of its bytes, if it was taken on their way."""
        where = self.where(entry)
        if found is None:
            try:
                found = fast_digest(file)
                file.seek(0)
            except OSError as error:
                raise CacheError(
                    f"{where} of the cache cannot be read ({error}). {self.advice()}"
                ) from error
        if found != entry.xxh3:
            self.note_damage(entry)
            raise CacheError(
                f"{where} of the cache is damaged: its xxh3 should be {entry.xxh3}, but is {found}"
                f". {self.advice()}"
            )

    def check(self, manifest: Manifest) -> None:
        """Every file is there, plain, and as long as the manifest says. Raises CacheError."""
        for entry in manifest.files():
            self.opened(entry).close()

    def expect(self, entries: Sequence[FileEntry]) -> None:
        """These files will be opened next, in this order; nothing to do if they are here
        already."""

    def close(self) -> None:
        """Drop what was fetched and not opened."""

    def note_damage(self, entry: FileEntry) -> None:
        """Leave word for the run that repairs; if nothing can be written there, it must find out
        by itself."""
        if not self.notes:
            return
        with suppress(OSError, StoreError):
            names = sorted({*noted_damage(self), entry.file})
            self.store.write(self.folder + DAMAGED, json.dumps(names).encode())

    def advice(self) -> str:
        """What to do about damage that only reading shows."""
        return (
            "Run again with the data: what is damaged is made again. Or delete the folder "
            f"{self.home}."
        )


def noted_damage(files: CacheFiles) -> list[str]:
    """Names of the files that readers found damaged. Raises StoreError if a bucket fails."""
    try:
        found = parse_json(files.store.read(files.folder + DAMAGED))
    except (OSError, ValueError):  # none, or nothing that a reader left
        return []
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
