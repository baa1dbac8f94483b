"""The fsspec filesystem behind a bucket: opened with its own credentials, and what differs
between kinds."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from distcore_core.errors import StoreError, UserError
from distcore_data.stores.addresses import PACKAGES
from distcore_data.stores.store import Credentials

_memory = threading.Lock()


def open_filesystem(address: str, kind: str, credentials: Credentials | None) -> tuple[Any, str]:
    """The filesystem and the address's path in it. Raises UserError: a package is missing, an
    option is wrong."""
    import fsspec

    options = dict(credentials.options) if credentials else {}
    if kind == "s3":
        # Attempts are counted and waited for in one place, retries.py; the libraries' own would
        # multiply them.
        config = {
            "retries": {"total_max_attempts": 1, "mode": "standard"},
            **(options.pop("config_kwargs", None) or {}),
        }
        options["config_kwargs"] = config
    if kind != "memory":
        options["use_listings_cache"] = False
    shown = address.partition("://")[0]
    try:
        files, root = fsspec.core.url_to_fs(address, **options)
    except ImportError as error:
        raise UserError(
            f"{shown}:// needs a package that is not installed ({error}). Run: pip install "
            f"'{PACKAGES[kind]}'."
        ) from error
    except Exception as error:  # noqa: BLE001 - of a wrong option each filesystem raises its own kind
        said = without(f"{type(error).__name__}: {error}", secrets_of(credentials))
        raise UserError(
            f"The store of {shown}:// cannot be opened with these credentials ({said}). "
            "Give in backend.cache_credentials what its fsspec filesystem takes."
        ) from None
    if kind == "s3":
        files.retries = 1
    return files, root.rstrip("/")


def put_if_absent(files: Any, kind: str, path: str, content: bytes) -> None:
    """Put an object on condition that there is none. Raises FileExistsError if there is one."""
    if kind == "memory":
        with _memory:
            files.pipe_file(path, content, mode="create")
        return
    # What fsspec has for all only looks before it writes. The store must decide: its own method
    # must take part.
    known = inspect.signature(getattr(files, "_pipe_file", files.pipe_file)).parameters
    if "mode" in known:
        files.pipe_file(path, content, mode="create")
    elif "overwrite" in known:
        files.pipe_file(path, content, overwrite=False)
    else:
        raise StoreError(
            f"{type(files).__name__} is too old for conditional puts. Upgrade {PACKAGES[kind]}."
        )


def modified(found: Mapping[str, Any]) -> float:
    """Seconds since 1970 of an object's last change, by its filesystem's word for it; 0 if it
    has none."""
    for name in ("LastModified", "last_modified", "updated", "mtime", "created"):
        if found.get(name):
            return seconds(found[name])
    return 0.0


def seconds(value: Any) -> float:
    """A time as seconds since 1970."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return float(value.timestamp() if isinstance(value, datetime) else value)


def secrets_of(credentials: Credentials | None) -> list[str]:
    """Every text in credentials, the longest first; but for those that may stand anywhere by
    chance."""
    return sorted(_texts(credentials.options), key=len, reverse=True) if credentials else []


def without(text: str, secrets: Iterable[str]) -> str:
    """The text with each secret replaced by three stars."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _texts(value: Any) -> Iterable[str]:
    # An address is none, but for the user and password in it.
    if isinstance(value, str) and "://" in value:
        user = value.partition("://")[2].rpartition("@")[0]
        yield from (each for each in (user, user.partition(":")[2]) if len(each) >= 4)
    elif isinstance(value, str) and len(value) >= 4:
        yield value
    inside = (
        value.values()
        if isinstance(value, Mapping)
        else value
        if isinstance(value, list | tuple)
        else ()
    )
    for each in inside:
        yield from _texts(each)
