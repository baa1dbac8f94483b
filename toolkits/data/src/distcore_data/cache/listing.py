"""What lies in a folder or bucket of caches: each with its state, size, age and users, and what
dead builders left.

Only names that nobody else would choose are looked at: 40 hex digits with a manifest of ours
inside, and what `local.py` and `remote.py` leave of such names. Everything else is the user's.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from distcore_core.errors import CacheError, StoreError, UserError
from distcore_data.cache.files import DAMAGED, CacheFiles
from distcore_data.cache.local import LEFT_OVER, closed_part
from distcore_data.cache.manifest import FILE_NAME, KEY, MANIFEST, VERSION, Manifest, OtherVersion
from distcore_data.cache.opening import damage_of
from distcore_data.cache.remote import DEAD_AFTER, LEASE, NAMED
from distcore_data.cache.use import READING, USED, users_here, users_there
from distcore_data.locks import is_held
from distcore_data.seals import parse_json, read_bounded
from distcore_data.stores import Credentials, Stat, Store, open_store
from distcore_data.stores.local import LocalStore
from distcore_data.stores.store import read_if_there

TEMPORARY = re.compile(r"\.[^/]+\.[0-9a-f]{32}\.tmp", re.ASCII)
"""A file of ours that a killed process did not finish."""


BUCKETS_OWN = re.compile(
    rf"{re.escape(LEASE)}|{re.escape(USED)}|{READING}[0-9a-f]{{32}}\.json"
    rf"|{VERSION.pattern}/({re.escape(DAMAGED)}|{FILE_NAME.pattern})",
    re.ASCII,
)
"""Names of ours below a key in a bucket."""

IN_A_FOLDER = re.compile(
    rf"{re.escape(MANIFEST)}|{re.escape(DAMAGED)}|{FILE_NAME.pattern}", re.ASCII
)
"""Names of ours in a cache's folder; beside a manifest in a bucket, too: a cache that was copied
there has no version's folder."""

BEGINS = b'{\n "digest": "'
"""How a manifest begins."""

NOT_OURS = "it holds {}, which is none of a cache's files"
NO_MANIFEST = f"it has no {MANIFEST} of distcore's"

CACHES = ("whole", "damaged", "other version")
"""States of what is a cache."""


@dataclass(frozen=True)
class Entry:
    """A cache, or what is left of one.

    state: "whole", "damaged", "other version" (of an older or newer distcore), "building", "left
        over", or "foreign", which has a name of ours and other contents and is never touched.
    rows: of all splits. bytes: of all its files. built, used: seconds since 1970, 0 if that is not
        known.
    source: digest and rows of the data it was made of. users: processes that are seen to use it;
    in_use: whether any does. why: what is damaged, foreign or of another version. paths: names
        below the place that go when it is removed."""

    key: str
    state: str
    bytes: int
    built: float = 0.0
    used: float = 0.0
    format: str = ""
    rows: int = 0
    features: tuple[str, ...] = ()
    source: dict[str, str | int] = field(default_factory=dict)
    in_use: bool = False
    users: tuple[str, ...] = ()
    why: str = ""
    paths: tuple[str, ...] = ()


def list_caches(
    place: str | os.PathLike[str], credentials: Credentials | None = None
) -> list[Entry]:
    """Everything of ours at a path or an address, the one used longest ago first. Changes nothing.

    Raises UserError for an address of no store or a folder that cannot be looked at, StoreError
    for such a bucket."""
    return listed(open_store(place, credentials), time.time())


def listed(store: Store, now: float) -> list[Entry]:
    """`list_caches` of a store. now: by the clock of a bucket."""
    try:
        found = _in_folder(store) if isinstance(store, LocalStore) else _in_bucket(store, now)
    except OSError as error:
        raise UserError(
            f"The caches in {store.url} cannot be looked at: {error}. Name another place with "
            "--cache_dir."
        ) from error
    return sorted(found, key=lambda entry: (max(entry.used, entry.built), entry.key, entry.paths))


# ------------------------------------------------------------------ in a folder


def _in_folder(store: LocalStore) -> list[Entry]:
    try:
        folders = {each.name: each.is_dir(follow_symlinks=False) for each in os.scandir(store.root)}
    except FileNotFoundError:
        return []
    entries: list[Entry] = []
    left: dict[str, list[str]] = {}
    for name in sorted(folders):
        over = LEFT_OVER.fullmatch(name)
        if KEY.fullmatch(name) and folders[name]:
            entry = folder_entry(store, name)
            if (store.root / name).exists():  # else it went meanwhile
                entries.append(entry)
        elif over and folders[name] != name.endswith(".lock"):
            left.setdefault(over[1], []).append(name)
    for key, paths in left.items():
        state = "building" if _is_held(store.root / f"{key}.lock") else "left over"
        size = sum(_size(store.root / each) for each in paths)
        entries.append(
            Entry(key, state, size, built=_newest(store.root, paths), paths=tuple(paths))
        )
    return entries


def folder_entry(store: LocalStore, key: str) -> Entry:
    """A cache that lies in a folder of its own."""
    folder = store.root / key
    size, built = _size(folder), _time(folder / MANIFEST)
    names = _files(folder)
    foreign = [name for name in names if not _is_ours(name)]
    why = NOT_OURS.format(foreign[0]) if foreign else ""
    if not foreign and not _looks_ours(folder, names):
        closed = closed_part(folder)
        why = f"this user may not read {closed}" if closed else NO_MANIFEST
    if why:
        return Entry(key, "foreign", size, built, why=why)
    in_use, users = users_here(folder)
    return _described(
        CacheFiles(store, f"{key}/"),
        Entry(
            key,
            "whole",
            size,
            built,
            _time(folder),
            in_use=in_use,
            users=tuple(map(str, users)),
            paths=(key,),
        ),
    )


def _is_ours(name: str) -> bool:
    return bool(IN_A_FOLDER.fullmatch(name) or TEMPORARY.fullmatch(name.rpartition("/")[2]))


def _looks_ours(folder: Path, names: Iterable[str]) -> bool:
    """`_is_a_caches` of a folder."""
    try:
        content = read_bounded(folder / MANIFEST)
    except (OSError, ValueError):
        content = b""
    return _is_a_caches(content, names)


def _files(folder: Path) -> list[str]:
    found = []
    for root, folders, names in os.walk(folder):
        links = [name for name in folders if Path(root, name).is_symlink()]
        found += [Path(root, name).relative_to(folder).as_posix() for name in [*names, *links]]
    return sorted(found)


def _is_held(lock: Path) -> bool:
    """Whether a run builds; not known, and so not said, where the file system has no locks."""
    with suppress(OSError):
        return is_held(lock)
    return False


def _size(path: Path) -> int:
    total = 0
    for root, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):  # its builder has renamed or removed it
                status = Path(root, name).lstat()
                total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total


def _time(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _newest(root: Path, names: Iterable[str]) -> float:
    return max((_time(root / name) for name in names), default=0.0)


# ------------------------------------------------------------------ in a bucket


def _in_bucket(store: Store, now: float) -> list[Entry]:
    keys: dict[str, dict[str, Stat]] = {}
    for name, found in store.list().items():
        key = name.partition("/")[0]
        if KEY.fullmatch(key):
            keys.setdefault(key, {})[name] = found
    return [
        entry for key, found in keys.items() for entry in bucket_entries(store, key, found, now)
    ]


def bucket_entries(store: Store, key: str, found: dict[str, Stat], now: float) -> list[Entry]:
    """A cache in a bucket, and the versions beside it that its manifest does not name.

    found: every object below the key. now: by the store's clock."""
    files = CacheFiles(store, f"{key}/")
    entries: list[Entry] = []
    manifest = found.get(f"{key}/{MANIFEST}")
    version, why = _version_or_foreign(files, key, found)
    if why:
        size = sum(each.bytes for each in found.values())
        newest = max(each.modified for each in found.values())
        return [Entry(key, "foreign", size, newest, why=why)]
    if manifest is not None:
        names = {
            name
            for name in found
            if _part(name) in (version, MANIFEST, USED, DAMAGED)
            or _part(name).startswith(READING)
            or FILE_NAME.fullmatch(_below(name))
        }
        users = users_there(store, found, key, now)
        entries.append(
            _described(
                files,
                Entry(
                    key,
                    "whole",
                    sum(found[name].bytes for name in names),
                    manifest.modified,
                    max(found[name].modified for name in names),
                    in_use=bool(users),
                    users=tuple(users),
                    paths=tuple(sorted(names)),
                ),
            )
        )
    rest = {name for name in found if all(name not in entry.paths for entry in entries)}
    if rest:
        newest = max(found[name].modified for name in rest)
        state = "building" if now - newest < DEAD_AFTER else "left over"
        size = sum(found[name].bytes for name in rest)
        entries.append(Entry(key, state, size, newest, paths=tuple(sorted(rest))))
    return entries


def _version_or_foreign(
    files: CacheFiles, key: str, found: dict[str, Stat]
) -> tuple[str | None, str]:
    """(the version that the manifest names, if one does; why it is no cache, or "")."""
    has_manifest = f"{key}/{MANIFEST}" in found
    foreign = [
        name
        for name in map(_below, found)
        if not BUCKETS_OWN.fullmatch(name) and not (has_manifest and IN_A_FOLDER.fullmatch(name))
    ]
    if foreign:
        return None, NOT_OURS.format(min(foreign))
    if not has_manifest:
        return None, ""
    try:
        return files.manifest(key).version, ""
    except StoreError:
        raise
    except CacheError:
        content = read_if_there(files.store, f"{key}/{MANIFEST}") or b""
        named = NAMED.search(content)
        version = named[1].decode() if named else None
        return version, "" if _is_a_caches(content, found) else NO_MANIFEST


def _below(name: str) -> str:
    return name.partition("/")[2]


def _part(name: str) -> str:
    return _below(name).partition("/")[0]


# ------------------------------------------------------------------ both


def _is_a_caches(manifest: bytes, names: Iterable[str]) -> bool:
    """Whether a manifest is of a cache, whole or damaged: it begins as ours do, or is no JSON at
    all beside files that are named as ours."""
    if manifest.startswith(BEGINS):
        return True
    try:
        parse_json(manifest)
    except ValueError:
        return any(map(FILE_NAME.search, names))
    return False


def _described(files: CacheFiles, entry: Entry) -> Entry:
    """The entry with what its manifest tells, or with its damage."""
    damage = damage_of(files, entry.key, metadata=False)
    try:
        manifest: Manifest | None = files.manifest(entry.key)
    except StoreError:
        raise
    except OtherVersion as other:
        return replace(entry, state="other version", why=str(other))
    except CacheError:
        manifest = None
    entry = replace(entry, state="damaged" if damage else "whole", why=damage or "")
    if manifest is None:
        return entry
    return replace(
        entry,
        format=manifest.format.name,
        rows=sum(map(manifest.rows, manifest.splits)),
        features=tuple(manifest.columns),
        source=dict(manifest.document["source"]),
    )
