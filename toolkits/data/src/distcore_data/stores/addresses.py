"""Addresses of stores, such as s3://bucket/folder: which there are, and what none may hold.
Contacts nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from distcore_core.errors import UserError

SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+._:-]*)://")
"""Of a plugin's name too, which may hold a `_`."""

FOLDER_LIKE_ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+._-]+:/")
"""An address, also one that went through a `Path` and lost a slash."""

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
"""The schemes of stores, and what kind of store each is. Whatever else there is, is not
contacted."""

PACKAGES = {"s3": "distcore[s3]", "gs": "distcore[gs]", "abfs": "distcore[abfs]"}


def is_url(place: str | os.PathLike[str]) -> bool:
    """Whether a cache_dir is an address rather than a path."""
    return SCHEME.match(os.fspath(place)) is not None


def store_kind(place: str | os.PathLike[str]) -> str:
    """ "s3", "gs", "abfs", "memory", or "file" for a path; a scheme from outside is its own kind.
    Contacts nothing.

    Raises UserError for whatever is no store (http, chained protocols, …) or an address that no
    object can have."""
    found = SCHEME.match(os.fspath(place))
    if found is None:
        return "file"
    scheme, rest = found[1].lower(), os.fspath(place)[found.end() :]
    if scheme not in SCHEMES and scheme not in _from_outside():
        known = ", ".join(
            f"{each}://" for each in ("s3", "gs", "abfs", "file", "memory", *_from_outside())
        )
        raise UserError(
            f"{scheme}:// is no store. Nothing was contacted. Give a folder, or an address that "
            f"begins with one of {known}."
        )
    kind = SCHEMES.get(scheme, scheme)
    parts = rest.rstrip("/").split("/")
    if any(part in (".", "..") for part in parts) or any(mark in rest for mark in "?#\\\0\n"):
        raise UserError(
            f"{without_password(place)} is no address of a folder in a store: it holds '..', '?' "
            "or '#'. Nothing was contacted. Give a plain address such as s3://bucket/folder."
        )
    if _user_of(rest):
        raise UserError(
            f"{without_password(place)} was given with a password in it, which would be shown "
            "wherever the address is. Give it in backend.cache_credentials instead."
        )
    if kind == "file" and parts[0] not in ("", "localhost"):
        raise UserError(
            f"{scheme}://{rest} names another machine, {parts[0]}. Give file:/// and the whole "
            "path, or a plain path."
        )
    if kind in PACKAGES and not parts[0]:  # a plugin's place may be a path, such as that of a file
        raise UserError(
            f"{scheme}://{rest} names no bucket. Give an address such as {scheme}://bucket/folder."
        )
    if kind != "file" and "" in parts[1:]:
        raise UserError(
            f"{scheme}://{rest} has an empty part. Give an address such as "
            f"{scheme}://bucket/folder."
        )
    return kind


def _from_outside() -> list[str]:
    """The schemes that other distributions offer."""
    from distcore_core.registry.manager import environment_plugins

    return [each for each in environment_plugins().names("stores") if each not in SCHEMES]


def local_folder(place: str | os.PathLike[str]) -> Path | None:
    """The absolute folder that a path, also one of `~`, or a file:// address names; None for a
    bucket."""
    if store_kind(place) != "file":
        return None
    text = os.fspath(place)
    found = SCHEME.match(text)
    path = text[found.end() :].removeprefix("localhost") if found else os.path.expanduser(text)
    return Path(os.path.abspath(path))


def folder_or_address(place: str | os.PathLike[str], what: str) -> Path | str:
    """Where results or models lie: a folder, or the address of one in a bucket. what:
    "--model_path", for messages.

    Raises UserError, before anything is made, if an address is no store's or went through a
    `Path`."""
    text = os.fspath(place)
    if FOLDER_LIKE_ADDRESS.match(text) and not SCHEME.match(text) and not os.path.exists(text):
        raise UserError(
            f"{what} is {text}: an address that lost a slash, as it does in a pathlib.Path. Give "
            "it as a string."
        )
    try:
        folder = local_folder(text)
    except UserError as error:
        raise UserError(f"{what}: {error}") from None
    if folder is None:
        return text.rstrip("/")
    return folder if SCHEME.match(text) else Path(os.path.expanduser(place))


def folder_only(place: str | os.PathLike[str], what: str, because: str) -> Path:
    """The folder that the place is. because: a sentence that says why it must be one.

    Raises UserError, before anything is made, if it is the address of a bucket."""
    found = folder_or_address(place, what)
    if not isinstance(found, Path):
        raise UserError(
            f"{what} is {without_password(found)}, an address in a bucket. {because} Give a folder."
        )
    return found


def without_password(url: str | os.PathLike[str]) -> str:
    """The address without user and password. An abfs container before its `@` stays: that is no
    secret."""
    scheme, mark, rest = os.fspath(url).partition("://")
    return f"{scheme}{mark}{rest.removeprefix(_user_of(rest))}"


def _user_of(rest: str) -> str:
    """`user:password@` at the beginning of an address without its scheme, or "". A password may
    hold slashes; an access point's name (arn:aws:s3:…) has colons and is none."""
    user, at, _ = rest.rpartition("@")
    return user + at if ":" in user.partition("/")[0] and not user.startswith("arn:") else ""
