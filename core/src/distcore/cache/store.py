"""Where caches lie: a folder of this machine or a bucket, behind six verbs. Everything a cache does to storage but the
build of a local one (`local.py`, whose folder is renamed as a whole) goes through a `Store`.

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

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from distcore.errors import UserError

SCHEMES: Mapping[str, str] = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfs",
    "az": "abfs",
    "file": "file",
    "memory": "memory",
}
"""The schemes of a cache_dir, and what kind of store each is. Whatever else there is, is not contacted."""

PACKAGES = {"s3": "distcore[s3]", "gs": "distcore[gs]", "abfs": "distcore[abfs]"}

NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}(/[0-9A-Za-z][0-9A-Za-z._-]{0,127}){0,7}", re.ASCII)
SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.:-]*)://")

SMALL = 64 << 20
"""Most bytes that `read` takes into memory."""


@dataclass(frozen=True)
class Stat:
    """An object as a listing shows it. modified: seconds since 1970 by the store's own clock; 0 where it tells none."""

    bytes: int
    modified: float


@dataclass(frozen=True)
class Credentials:
    """What a store is opened with: options of its fsspec filesystem. Pickles; no repr shows them."""

    options: Mapping[str, Any] = field(repr=False)


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

    def open(self, name: str, size: int) -> BinaryIO:
        """A whole object as a seekable local file with a descriptor, closed by the caller; nothing of it outlives that.

        Of a length other than `size`: the file has another length too (not necessarily the object's). Raises
        FileNotFoundError."""
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


def is_url(place: str | os.PathLike[str]) -> bool:
    """Whether a cache_dir is an address rather than a path."""
    return SCHEME.match(os.fspath(place)) is not None


def kind_of(place: str | os.PathLike[str]) -> str:
    """ "s3", "gs", "abfs", "memory", or "file" for a path. Contacts nothing.

    Raises UserError for whatever is no store (http, chained protocols, …) or an address that no object can have."""
    found = SCHEME.match(os.fspath(place))
    if found is None:
        return "file"
    scheme, rest = found[1].lower(), os.fspath(place)[found.end() :]
    if scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in ("s3", "gs", "abfs", "file", "memory"))
        raise UserError(
            f"{scheme}:// is no store for caches. Nothing was contacted. Give a folder, or an address that begins "
            f"with one of {known}."
        )
    if any(part in (".", "..") for part in rest.split("/")) or any(mark in rest for mark in "?#\\\0\n"):
        raise UserError(
            f"{without_password(place)} is no address of a folder in a store: it holds '..', '?' or '#'. "
            "Nothing was contacted. Give a plain address such as s3://bucket/folder."
        )
    if SCHEMES[scheme] not in ("file", "memory") and not rest.partition("/")[0]:
        raise UserError(f"{scheme}://{rest} names no bucket. Give an address such as {scheme}://bucket/folder.")
    return SCHEMES[scheme]


def local_folder(place: str | os.PathLike[str]) -> Path | None:
    """The absolute folder that a path or a file:// address names; None for a bucket."""
    if kind_of(place) != "file":
        return None
    text = os.fspath(place)
    found = SCHEME.match(text)
    return Path(os.path.abspath(text[found.end() :] if found else text))


def open_store(place: str | os.PathLike[str], credentials: Credentials | None = None) -> Store:
    """The store at a path or an address. Contacts nothing yet.

    Raises UserError for an address that is no store's, or whose package is not installed."""
    folder = local_folder(place)
    if folder is not None:
        from distcore.cache.local_store import LocalStore

        return LocalStore(folder)
    from distcore.cache.bucket import Bucket

    return Bucket(os.fspath(place), credentials)


def without_password(url: str | os.PathLike[str]) -> str:
    """The address without user and password. An abfs container before its `@` stays: that is no secret."""
    scheme, mark, rest = os.fspath(url).partition("://")
    host, slash, path = rest.partition("/")
    user, at, place = host.rpartition("@")
    return f"{scheme}{mark}{place if ':' in user else user + at + place}{slash}{path}"


def checked(name: str) -> str:
    """The name, if it is one. Raises ValueError."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of an object")
    return name
