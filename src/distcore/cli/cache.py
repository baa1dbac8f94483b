"""The command `cache`: list, verify and prune what lies in a folder or bucket of caches."""

from __future__ import annotations

import json
import os
import re
import time
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from distcore.cli import flags
from distcore_core.errors import UserError
from distcore_data.figures import human_bytes
from distcore_data.table import table

if TYPE_CHECKING:
    from distcore_data.cache import Credentials
    from distcore_data.cache.listing import Entry

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(|k|M|G|T)B?", re.IGNORECASE)
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
DAY = 24 * 3600
SHOWN = 12
"""Digits of a key that a table shows."""


class CacheCommand:
    """`distcore cache ACTION`."""

    help = "list, verify and prune the caches of a folder or bucket"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Its actions, each with its options."""
        flags.examples(
            parser,
            "cache list --dataset data.csv",
            "cache prune --cache_dir .distcore_cache --help",
        )
        actions = parser.add_subparsers(
            title="actions", metavar="ACTION", dest="action", required=True
        )
        for name, text, fill in ACTIONS:
            action = actions.add_parser(name, help=text, description=text, allow_abbrev=False)
            action.add_argument(
                "--debug", action="store_true", default=SUPPRESS, help="show tracebacks"
            )
            group = action.add_argument_group("where the caches lie")
            flags.flag(
                group,
                "cache_dir",
                metavar="DIR",
                help="folder, or address such as s3://bucket/folder",
            )
            flags.flag(
                group,
                "config",
                "-c",
                metavar="FILE",
                help="the config that names it, and its credentials",
            )
            flags.flag(
                group,
                "dataset",
                metavar="PATH",
                help="the dataset beside which they lie by default",
            )
            flags.flag(action, "json", action="store_true", help="print JSON")
            fill(action)

    def run(self, arguments: Namespace) -> int:
        """One of the three actions."""
        return {"list": show, "verify": verify, "prune": prune}[arguments.action](arguments)


def _keys(parser: ArgumentParser) -> None:
    parser.add_argument(
        "keys", metavar="KEY", nargs="*", help="caches by the beginning of their keys; default: all"
    )


def _rules(parser: ArgumentParser) -> None:
    rules = parser.add_argument_group("what goes, of what no run uses")
    flags.flag(
        rules,
        "older_than",
        type=float,
        metavar="DAYS",
        help="caches that were not used for so many days",
    )
    flags.flag(
        rules,
        "keep",
        metavar="SIZE",
        help="those used longest ago, until no more than SIZE (such as 20GB) is left",
    )
    flags.flag(rules, "unused", action="store_true", help="every cache that is not in use now")
    flags.flag(parser, "dry_run", action="store_true", help="only tell what would be removed")


ACTIONS = [
    (
        "list",
        "show the caches: key, state, format, rows, size, age, who uses them",
        lambda parser: None,
    ),
    ("verify", "read every byte and compare sha256; exit code 1 if a file is damaged", _keys),
    (
        "prune",
        "remove what killed builders left, and the caches that a rule lets go; never one in use",
        _rules,
    ),
]


def show(arguments: Namespace) -> int:
    """A row for each cache, the one used longest ago first, and for what killed builders left."""
    from distcore_data.cache.listing import list_caches

    place, credentials = _place(arguments)
    entries = list_caches(place, credentials)
    if arguments.json:
        print(json.dumps([asdict(entry) for entry in entries], indent=2))
        return 0
    header = ("KEY", "STATE", "FORMAT", "ROWS", "SIZE", "BUILT", "USED", "BY", "MADE OF")
    print(table([header, *map(_row, entries)]))
    print(f"{human_bytes(sum(entry.bytes for entry in entries))} in {_shown(place)}")
    for entry in entries:
        if entry.why:
            print(f"{entry.key}: {entry.why}")
    return 0


def verify(arguments: Namespace) -> int:
    """Read every byte of each cache; 1 if a file is damaged, which is named."""
    from distcore_core.errors import CacheError, StoreError
    from distcore_data.cache import Cache, examine
    from distcore_data.cache.listing import CACHES, list_caches
    from distcore_data.cache.manifest import OtherVersion

    place, credentials = _place(arguments)
    entries = [entry for entry in list_caches(place, credentials) if entry.state in CACHES]
    reports: list[dict[str, Any]] = []
    for entry in _chosen(entries, arguments.keys, place):
        other = ""
        try:
            read, damaged = examine(Cache.at(place, entry.key, credentials))
        except StoreError:
            raise
        except OtherVersion as error:
            read, damaged, other = 0, [], str(error)
        except CacheError as error:  # of the manifest
            read, damaged = 0, [str(error)]
        found = {"key": entry.key, "bytes": read, "damaged": damaged, "other_version": other}
        reports.append(found)
    if arguments.json:
        print(json.dumps(reports, indent=2))
    else:
        if not reports:
            print(f"There are no caches in {_shown(place)}.")
        for report in reports:
            if report["other_version"]:
                print(f"{report['key']} was not read: {report['other_version']}")
                continue
            said = "is whole" if not report["damaged"] else "is damaged"
            print(f"{report['key']} {said}, {human_bytes(report['bytes'])} read")
            print(*(f"  {damage}\n" for damage in report["damaged"]), sep="", end="")
    return 1 if any(report["damaged"] for report in reports) else 0


def prune(arguments: Namespace) -> int:
    """Remove left-overs, and the caches that a rule lets go; a row for each, and what became of
    it."""
    from distcore_data.cache.prune import Rules, prune

    place, credentials = _place(arguments)
    older = arguments.older_than
    if older is not None and not older >= 0:
        raise UserError(f"--older_than {older:g} is no number of days. Give 0 or more.")
    keep = None if arguments.keep is None else size_of(arguments.keep)
    rules = Rules(None if older is None else older * DAY, keep, arguments.unused)
    decisions = prune(place, rules, credentials, dry_run=arguments.dry_run)
    freed = sum(each.entry.bytes for each in decisions if each.what != "kept")
    if arguments.json:
        print(
            json.dumps(
                [
                    {
                        **asdict(each.entry),
                        "what": each.what,
                        "reason": each.why,
                        "kept": each.why if each.what == "kept" else "",
                    }
                    for each in decisions
                ],
                indent=2,
            )
        )
        return 0
    rows = [
        (
            each.entry.key[:SHOWN],
            each.entry.state,
            human_bytes(each.entry.bytes),
            each.what,
            each.why,
        )
        for each in decisions
    ]
    print(table([("KEY", "STATE", "SIZE", "WHAT", "WHY"), *rows]))
    print(
        f"{human_bytes(freed)} {'would be freed' if arguments.dry_run else 'freed'} in "
        f"{_shown(place)}"
    )
    return 0


def size_of(text: str) -> int:
    """Bytes of `1500`, `20GB` or `1.5 TB`; powers of ten. Raises UserError."""
    found = SIZE.fullmatch(text.strip())
    if found is None:
        raise UserError(f"--keep {text!r} is no size. Give one such as 500MB, 20GB or 1.5TB.")
    return int(float(found[1]) * UNITS[found[2].lower()])


# ------------------------------------------------------------------ inside


def _place(arguments: Namespace) -> tuple[str, Credentials | None]:
    """Where the caches lie, and what that is opened with."""
    place, credentials = arguments.cache_dir, None
    if arguments.config is not None:
        from distcore.config import load_config

        backend = load_config(arguments.config).backend
        place = place or backend.cache_dir
        credentials = backend.credentials
    if place is None and arguments.dataset is not None:
        from distcore_data.dataset import Data
        from distcore_data.sources.fetch import existing, is_pattern, is_url, local_path

        place = Data(arguments.dataset).cache_root()
        path = local_path(arguments.dataset)
        if not (is_url(arguments.dataset) or is_pattern(path) or os.path.isdir(place)):
            existing(path)
    if place is None:
        named = (
            "" if arguments.config is None else f"{arguments.config} names no backend.cache_dir. "
        )
        raise UserError(
            f"{named}Say where the caches lie: with --cache_dir, a --config that names it, or "
            "--dataset."
        )
    if arguments.cache_dir is not None:
        _refuse_missing(place)
    return place, credentials


def _refuse_missing(place: str) -> None:
    """Raise UserError for a folder that is not there: it is misspelt, for a run makes its own."""
    from distcore_data.stores import open_store
    from distcore_data.stores.local import LocalStore

    store = open_store(place)
    if isinstance(store, LocalStore) and not store.root.is_dir():
        raise UserError(f"{store.url} (--cache_dir): there is no such folder. Correct its path.")


def _chosen(entries: Sequence[Entry], keys: Sequence[str], place: str) -> list[Entry]:
    """The entries whose keys begin so; all if nothing is named. Raises UserError for what none
    begins with."""
    for key in keys:
        if not any(entry.key.startswith(key) for entry in entries):
            raise UserError(
                f"No cache in {_shown(place)} has a key that begins with {key!r}. See `distcore "
                "cache list`."
            )
    return [entry for entry in entries if not keys or entry.key.startswith(tuple(keys))]


def _row(entry: Entry) -> tuple[Any, ...]:
    by = ", ".join(entry.users) if entry.users else "somebody" if entry.in_use else ""
    digest = str(entry.source.get("digest", ""))[:SHOWN]
    made = (
        f"{digest}: {entry.source.get('rows', 0):,} rows, {len(entry.features)} features"
        if digest
        else ""
    )
    rows = f"{entry.rows:,}" if entry.format else ""
    times = (_when(entry.built), _when(entry.used))
    return (
        entry.key[:SHOWN],
        entry.state,
        entry.format,
        rows,
        human_bytes(entry.bytes),
        *times,
        by,
        made,
    )


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else ""


def _shown(place: str) -> str:
    from distcore_data.stores import open_store

    return open_store(place).url
