"""Say that a run reads a cache, so that nobody removes it meanwhile; and see who does.

In a folder a use is a shared lock on the manifest, which the system releases when its process dies,
however it dies; it leaves no file, and needs no right to write. In a bucket it is an object beside
the manifest that changes every BEAT seconds, and that counts for EXPIRY seconds after its last
change, by the store's own clock.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from distcore_core.errors import CacheError, StoreError
from distcore_data.cache.manifest import MANIFEST
from distcore_data.locks import LOCKLESS, file_if_free, let_go, lock_file
from distcore_data.seals import parse_json
from distcore_data.stores import Stat, Store
from distcore_data.stores.lease import Heartbeat

if TYPE_CHECKING:
    from distcore_data.cache import Cache

BEAT = 60.0
"""Seconds between two changes of the object of a use in a bucket."""

EXPIRY = 600.0
"""Seconds after its last change, by the store's clock, from which on such an object counts for
nothing."""

READING = "reading-"
"""How the names of these objects begin."""

USED = "used.json"
"""What a use leaves in a bucket: its last change tells when the cache was used last."""

log = logging.getLogger("distcore")


class Use:
    """A use that goes on until `close`, or until the process ends."""

    def close(self) -> None:
        """It is over."""


def begin_use(cache: Cache) -> Use | None:
    """Use a cache from here on; None: it is not there (any more). Raises CacheError if its disk
    fails."""
    if cache.in_bucket:
        return BucketUse.begin(cache.store(), cache.key)
    try:
        handle = lock_file(cache.folder / MANIFEST, fcntl.LOCK_SH)
    except OSError as error:
        if error.errno not in LOCKLESS:
            raise CacheError(
                f"{cache.folder} cannot be locked ({error.strerror}), so nobody would know that it "
                "is used. Look at that disk, or choose another folder with backend.cache_dir."
            ) from error
        log.info(
            "That this run uses the cache cannot be seen: %s has no locks (%s).",
            cache.folder,
            error.strerror,
        )
        return Use()
    if handle is None:
        return None
    with suppress(OSError):  # not ours to write: then nobody knows when it was used
        os.utime(cache.folder)
    return FolderUse(handle)


# ------------------------------------------------------------------ in a folder


class FolderUse(Use):
    """handle: of a manifest, with its lock."""

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle
        self._owner = os.getpid()

    def close(self) -> None:
        if self._handle is not None:
            let_go(self._handle, self._owner)
            self._handle = None

    def __del__(self) -> None:
        self.close()


def users_here(folder: Path) -> tuple[bool, list[int]]:
    """Whether a run is seen to use the cache in a folder, and the processes that are seen to:
    others may be out of sight, in another container or on another machine."""
    with file_if_free(folder / MANIFEST, unwritable=True) as free:
        return not free, [] if free else _holders(folder / MANIFEST)


def _holders(path: Path) -> list[int]:
    """Processes that Linux says hold a flock of the file, from lines such as
    `1: FLOCK  ADVISORY  READ  4711 fe:00:393270 0 EOF`."""
    try:
        status = path.stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:  # the file may be gone meanwhile
        return []
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    fields = [line.split() for line in lines]
    return sorted(
        {
            int(each[4])
            for each in fields
            if len(each) > 5 and each[1] == "FLOCK" and each[5] == wanted
        }
    )


# ------------------------------------------------------------------ in a bucket


class BucketUse(Use):
    """A use in a bucket, kept alive by a thread."""

    def __init__(self, store: Store, key: str) -> None:
        self._store, self._key = store, key
        self._name = f"{key}/{READING}{uuid.uuid4().hex}.json"
        self._heart = Heartbeat(store, self._name, self._content, BEAT)

    @classmethod
    def begin(cls, store: Store, key: str) -> BucketUse | None:
        """First the object, then a look whether the cache is there: who removes it looks in the
        other order."""
        use = cls(store, key)
        try:
            store.write(use._name, use._content(0))
        except StoreError as error:
            log.info("That this run uses the cache cannot be noted beside it (%s).", error)
            return use
        try:
            store.read(f"{key}/{MANIFEST}")
        except FileNotFoundError:
            store.delete([use._name])
            return None
        use._heart.start()
        return use

    def close(self) -> None:
        if not self._heart.stop():
            return
        # If that fails it counts until it expires; if it is gone the cache is, removed by the run
        # itself.
        with suppress(StoreError, FileNotFoundError):
            self._store.read(self._name)
            self._store.write(f"{self._key}/{USED}", self._content(0))
            self._store.delete([self._name])

    def _content(self, beat: int) -> bytes:
        return json.dumps(
            {"host": socket.gethostname(), "process": os.getpid(), "at": time.time()}
        ).encode()


def users_there(store: Store, found: dict[str, Stat], key: str, now: float) -> list[str]:
    """Who uses a cache in a bucket, as `host:process`. found: its objects; now: by the store's
    clock."""
    users = []
    for name, stat in found.items():
        alive = not stat.modified or now - stat.modified < EXPIRY
        if name.startswith(f"{key}/{READING}") and alive:
            try:
                who = parse_json(store.read(name))
                users.append(f"{who['host']}:{who['process']}")
            except FileNotFoundError:  # it ended meanwhile
                continue
            except (ValueError, KeyError, TypeError):
                users.append("unknown")
    return sorted(users)
