"""What a store is: seven verbs over objects by name, what a listing shows of one, and what a store
is opened with."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from distcore_core.contracts import Credentials
from distcore_core.errors import UserError
from distcore_data.seals import parse_json, read_bounded

NAME = re.compile(
    r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}(/[0-9A-Za-z][0-9A-Za-z._-]{0,127}){0,7}", re.ASCII
)

SMALL = 64 << 20
"""Most bytes that `read` takes into memory."""


Seen = Callable[[int, bytes], Any]
"""seen(start, block): the bytes of an object from `start` on. They come in order from 0, and from 0
again after a request that failed in their middle."""


@dataclass(frozen=True)
class Stat:
    """An object as a listing shows it. modified: seconds since 1970 by the store's own clock; 0
    if it tells none."""

    bytes: int
    modified: float


def read_credentials(value: Any) -> Credentials | None:
    """Credentials as users give them: a mapping, the path of a JSON file that holds one, or None.

    Raises ValueError saying what is wrong, and nothing of what is in them."""
    if isinstance(value, str | os.PathLike):
        try:
            value = parse_json(read_bounded(Path(os.path.expanduser(value)), 1 << 20, pipe=True))
        except OSError as error:
            raise ValueError(
                f"the file cannot be read ({error.strerror}); give a mapping, or the path of a "
                "JSON file"
            ) from None
        except ValueError:
            raise ValueError(
                "the file is not JSON; give a mapping, or the path of a JSON file"
            ) from None
    if value is None or isinstance(value, Mapping):
        return Credentials(dict(value)) if value is not None else None
    raise ValueError("should be a mapping, or the path of a JSON file that holds one")


def given_credentials(value: Any) -> Credentials | None:
    """The same, of an argument `credentials` or the flag. Raises UserError."""
    try:
        return read_credentials(value)
    except ValueError as error:
        raise UserError(f"--credentials: {error}.") from None


def read_if_there(store: Store, name: str) -> bytes | None:
    """A whole object, or None if there is none. Raises as `Store.read`."""
    try:
        return store.read(name)
    except FileNotFoundError:
        return None


class Store(Protocol):
    """A folder of objects. url: where, without a secret, for people. Every call may come from any
    thread.

    Raises StoreError naming the object and the cause if a bucket cannot be asked, after bounded
    retries; OSError from a local folder. Only FileNotFoundError means that there is no such
    object."""

    url: str

    def where(self, name: str) -> str:
        """The whole path or URL of an object, for messages."""
        ...

    def list(self, prefix: str = "") -> dict[str, Stat]:
        """Every object below a folder.

        Args:
            prefix: The folder with its slash, or "" for all; never a part of a name.

        Returns:
            {name: what is known of it without reading it}.
        """
        ...

    def read(self, name: str) -> bytes:
        """A whole object.

        Args:
            name: Of the object.

        Raises:
            FileNotFoundError: There is none.
            OSError: It has more than SMALL bytes.
        """
        ...

    def open(self, name: str, size: int, seen: Seen | None = None) -> BinaryIO:
        """A whole object as a seekable local file with a descriptor, closed by the caller; nothing
        of it outlives that.

        Args:
            name: Of the object.
            size: Its length in bytes. If that is another, the file has another length too, perhaps
                not the object's.
            seen: Told of the object's blocks on their way, if it is fetched in one piece.

        Raises:
            FileNotFoundError: There is none.
        """
        ...

    def put(self, name: str, path: Path) -> None:
        """Store a local file's bytes, whole or not at all, in place of what has the name.

        Args:
            name: Of the object.
            path: Of the file.

        Raises:
            StoreError: The bucket cannot be asked, or refuses; what was there is as it was.
        """
        ...

    def write(self, name: str, content: bytes) -> None:
        """The same with bytes from memory."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Store the bytes under a name that nothing has.

        Of all who create one name exactly one gets True, however many try at once; so contents must
        differ between processes that are to be told apart.

        Args:
            name: Of the object.
            content: All of it.

        Returns:
            True: these bytes are there now; False: others are.

        Raises:
            StoreError: The store cannot promise that.
        """
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; names that are gone already are fine."""
        ...


def checked(name: str) -> str:
    """The name, if it is one. Raises ValueError."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of an object")
    return name
