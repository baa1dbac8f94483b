"""Where caches and results lie: a folder of this machine or a bucket, behind six verbs. Whatever a cache does to
storage goes through a `Store`, but for the build of a local one, whose folder is renamed as a whole (`cache/local.py`).
Results are made in a local folder, which a `mirror.Mirror` copies into a bucket.

    store = open_store("s3://bucket/cache", credentials)
    store.list("<key>/")                              every object below: {name: Stat}
    store.read("<key>/manifest.json")                 a small object, whole
    store.open("<key>/<version>/train/00000.parquet", size)    a large one, as a local file that can be mapped
    store.put(name, path); store.write(name, content)  an object from a file, or from bytes; replaces what was there
    store.create(name, content)                       True for exactly one of all who ask for one name: what decides
    store.delete(names)                               names that are gone already are fine

A name is a relative path of plain parts with slashes between. A store keeps no state between calls: what it said may be
out of date when the next call is made, and only `create` decides anything between processes. For what must be seen to
be alive (a builder, a reader), write a small object beside the data, change it now and then, and let others watch
whether it changes by their own clock: no two machines need agree on the time, and what a dead process left still shows.

Stores pickle, credentials included, into the job of a worker, and show no credentials in their repr.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from distcore.stores.addresses import local_folder

NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}(/[0-9A-Za-z][0-9A-Za-z._-]{0,127}){0,7}", re.ASCII)

SMALL = 64 << 20
"""Most bytes that `read` takes into memory."""


Seen = Callable[[int, bytes], Any]
"""seen(start, block): the bytes of an object from `start` on. They come in order from 0, and from 0 again after a
request that failed in their middle."""


@dataclass(frozen=True)
class Stat:
    """An object as a listing shows it. modified: seconds since 1970 by the store's own clock; 0 where it tells none."""

    bytes: int
    modified: float


@dataclass(frozen=True)
class Credentials:
    """What a store is opened with: options of its fsspec filesystem. Pickles; no repr shows them."""

    options: Mapping[str, Any] = field(repr=False)


def read_credentials(value: Any) -> Credentials | None:
    """Credentials as users give them: a mapping, the path of a JSON file that holds one, or None.

    Raises ValueError saying what is wrong, and nothing of what is in them."""
    if isinstance(value, str | os.PathLike):
        try:
            value = json.loads(Path(value).expanduser().read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(
                f"the file cannot be read ({error.strerror}); give a mapping, or the path of a JSON file"
            ) from None
        except ValueError:
            raise ValueError("the file is not JSON; give a mapping, or the path of a JSON file") from None
    if value is None or isinstance(value, Mapping):
        return Credentials(dict(value)) if value is not None else None
    raise ValueError("should be a mapping, or the path of a JSON file that holds one")


class Store(Protocol):
    """A folder of objects. url: where, without a secret, for people. Every call may come from any thread.

    Raises StoreError naming the object and the cause where a bucket cannot be asked, after bounded retries; OSError
    from a local folder. Only FileNotFoundError means that there is no such object."""

    url: str

    def where(self, name: str) -> str:
        """The whole path or URL of an object, for messages."""
        ...

    def list(self, prefix: str = "") -> dict[str, Stat]:
        """Objects whose name begins with `prefix` (a folder with its slash, or "" for all)."""
        ...

    def read(self, name: str) -> bytes:
        """A whole object. Raises FileNotFoundError, and OSError where it has more than SMALL bytes."""
        ...

    def open(self, name: str, size: int, seen: Seen | None = None) -> BinaryIO:
        """A whole object as a seekable local file with a descriptor, closed by the caller; nothing of it outlives that.

        Of a length other than `size`: the file has another length too (not necessarily the object's). seen: where the
        object is fetched in one piece, told of its blocks on their way. Raises FileNotFoundError."""
        ...

    def put(self, name: str, path: Path) -> None:
        """Store a local file's bytes under the name, whole or not at all, in place of what was there."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """The same with bytes from memory."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Store the bytes under a name that nothing has. True: these bytes are there now; False: others are.

        Of all who create one name exactly one gets True, however many try at once; so contents must differ between
        processes that are to be told apart. Raises StoreError where the store cannot promise that."""
        ...

    def delete(self, names: Iterable[str]) -> None: ...


def open_store(place: str | os.PathLike[str], credentials: Credentials | None = None) -> Store:
    """The store at a path or an address. Contacts nothing yet.

    Raises UserError for an address that is no store's, or whose package is not installed."""
    folder = local_folder(place)
    if folder is not None:
        from distcore.stores.local import LocalStore

        return LocalStore(folder)
    from distcore.stores.bucket import Bucket

    return Bucket(os.fspath(place), credentials)


def checked(name: str) -> str:
    """The name, if it is one. Raises ValueError."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of an object")
    return name
