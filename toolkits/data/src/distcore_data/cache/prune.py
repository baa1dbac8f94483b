"""Free what nobody needs: caches by age, by size or all that are unused, and what killed builders
left.

What a run uses is never removed, and neither is anything that is not a cache's: each is looked at
again, under its locks, right before it goes.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from distcore_core.io.atomic import remove_directory
from distcore_data.cache import Cache
from distcore_data.cache.listing import CACHES, Entry, bucket_entries, folder_entry, listed
from distcore_data.cache.manifest import MANIFEST
from distcore_data.cache.remote import DEAD_AFTER
from distcore_data.cache.use import users_there
from distcore_data.locks import file_if_free, locked_if_free
from distcore_data.stores import Credentials, Store, open_store
from distcore_data.stores.bucket import Bucket
from distcore_data.stores.local import LocalStore

DAY = 86_400


@dataclass(frozen=True)
class Rules:
    """Which caches go: those not used for `older_than` seconds; those used longest ago until no
    more than `keep` bytes are left; all that are unused. None of these: no cache, and only what
    killed builders left."""

    older_than: float | None = None
    keep: int | None = None
    unused: bool = False


@dataclass(frozen=True)
class Decision:
    """What became of an entry, "removed", "would be removed" or "kept", and why."""

    entry: Entry
    what: str
    why: str = ""


def prune(
    place: str | os.PathLike[str],
    rules: Rules,
    credentials: Credentials | None = None,
    *,
    dry_run: bool = False,
) -> list[Decision]:
    """Remove what the rules say from a path or an address; what became of each entry that was
    there.

    dry_run: only tell. Raises UserError or StoreError if the place cannot be looked at or
        changed."""
    store = open_store(place, credentials)
    # A dry run writes nothing, so it goes by this machine's clock.
    now = time.time() if dry_run or isinstance(store, LocalStore) else clock(store)
    entries, decisions = listed(store, now), []
    going = chosen(entries, rules, now)
    for at, entry in enumerate(entries):
        if at not in going:
            decisions.append(Decision(entry, "kept", _reason(entry)))
        elif dry_run:
            decisions.append(Decision(entry, "would be removed", going[at]))
        else:
            why = _removed(store, entry)
            decisions.append(
                Decision(entry, "kept", why) if why else Decision(entry, "removed", going[at])
            )
    return decisions


def remove_unused(cache: Cache) -> str:
    """Remove one cache, if nobody uses it; else why it stays. Raises StoreError if its bucket
    cannot be looked at or changed."""
    store = cache.store()
    if isinstance(store, LocalStore):
        return _removed(store, folder_entry(store, cache.key))
    found, now = store.list(f"{cache.key}/"), clock(store)
    entries = bucket_entries(store, cache.key, found, now)
    found_here = (each for each in entries if each.state in (*CACHES, "foreign"))
    return next((_removed(store, each) for each in found_here), "")


def chosen(entries: Sequence[Entry], rules: Rules, now: float) -> dict[int, str]:
    """The places of the entries that the rules let go, of a list with the one used longest ago
    first, and why each goes."""
    going = {
        at: "a killed builder left it"
        for at, entry in enumerate(entries)
        if entry.state == "left over"
    }
    total = sum(entry.bytes for entry in entries if entry.state in CACHES)
    for at, entry in enumerate(entries):
        if entry.state not in CACHES or entry.in_use:
            continue
        age = now - max(entry.used, entry.built)
        if rules.unused:
            going[at] = "no run uses it"
        elif rules.older_than is not None and age > rules.older_than:
            going[at] = f"last used {age / DAY:.1f} days ago"
        elif rules.keep is not None and total > rules.keep:
            going[at] = "too much is kept, and it was used longest ago"
        if at in going:
            total -= entry.bytes
    return going


def clock(store: Store) -> float:
    """Now, by a bucket's own clock, from a small object that is written and deleted."""
    folder = f"clock-{uuid.uuid4().hex}"
    store.write(f"{folder}/now", b"")
    try:
        return store.list(f"{folder}/")[f"{folder}/now"].modified or time.time()
    finally:
        store.delete([f"{folder}/now"])


# ------------------------------------------------------------------ inside


def _reason(entry: Entry) -> str:
    if entry.state == "building":
        return "a run builds it"
    if entry.state == "foreign":
        return entry.why
    return _used_by(entry.users) if entry.in_use else "no rule says that it goes"


def _used_by(users: Sequence[str]) -> str:
    return f"used by {', '.join(users)}" if users else "used by a process out of sight"


def _removed(store: Store, entry: Entry) -> str:
    """Remove it; else why not, as a reason to keep it."""
    if entry.state == "foreign":
        return entry.why
    if isinstance(store, LocalStore):
        try:
            return _removed_here(store, entry)
        except OSError as error:
            return f"it cannot be removed: {error}"
    return _removed_there(store, entry) if entry.state in CACHES else _swept_there(store, entry)


def _removed_here(store: LocalStore, entry: Entry) -> str:
    with locked_if_free(store.root / f"{entry.key}.lock") as free:
        if not free:
            return "a run builds it"
        if entry.state == "left over":
            for name in entry.paths:
                if not name.endswith(".lock"):  # that goes with the lock
                    remove_directory(store.root / name)
            return ""
        found = folder_entry(store, entry.key)
        if found.state not in CACHES or found.in_use:
            return _reason(found)
        with file_if_free(store.root / entry.key / MANIFEST, unwritable=False) as unused:
            if not unused:
                return _used_by(())
            remove_directory(store.root / entry.key)
    return ""


def _removed_there(store: Store, entry: Entry) -> str:
    """The manifest first: whoever comes then finds no cache. Who came before shows, and it is
    put back for them."""
    manifest = f"{entry.key}/{MANIFEST}"
    try:
        content = store.read(manifest)
    except FileNotFoundError:
        return "it is gone already"
    now, users = clock(store), ["unknown"]
    try:
        store.delete([manifest])
        users = users_there(store, store.list(f"{entry.key}/"), entry.key, now)
    finally:  # also after an error: nobody could name what is left
        if users:
            store.create(manifest, content)
    if users:
        return _used_by(users)
    store.delete([name for name in entry.paths if name != manifest])
    return ""


def _swept_there(store: Store, entry: Entry) -> str:
    now, found = clock(store), store.list(f"{entry.key}/")
    for again in bucket_entries(store, entry.key, found, now):
        if again.state == "left over" and again.paths == entry.paths:
            store.delete(again.paths)
            if isinstance(store, Bucket):
                store.abort_uploads(entry.key, before=now - DEAD_AFTER)
            return ""
    return "it changed meanwhile"
