"""What is installed: every entry point as an offer, read from metadata alone; no plugin is
imported."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from itertools import chain
from typing import Any

from distcore_core.contracts.roles import singular
from distcore_core.errors import PluginConflict, PluginNotFound
from distcore_core.registry.lock import GROUPS, locked

_OFFERED = {
    "distcore-local": "backends:local processors:local loaders:packed trainers:local "
    "trainers:data_parallel trainers:ddp",
    "distcore-ray": "backends:ray executors:ray",
    "distcore-horovod": "backends:horovod trainers:horovod processors:horovod",
    "distcore-dask": "processors:dask",
    "distcore-modin": "processors:modin",
    "distcore-parquet": "caches:parquet",
    "distcore-hdf5": "caches:hdf5",
    "distcore-tfrecord": "caches:tfrecord",
    "distcore-tabular": "models:tabular models:module upgrades:ludwig features:number "
    "features:binary features:category features:text features:set features:date",
    "distcore-optuna": "executors:local executors:optuna",
    "distcore-lightgbm": "trainers:lightgbm",
    "distcore-xgboost": "trainers:xgboost",
    "distcore-data": "sections:preprocessing",
    "distcore-torch": "sections:trainer",
    "distcore-search": "sections:hyperopt",
    "distcore-report": "extensions:report commands:report",
    "distcore-testing": "commands:new-plugin",
}
INSTALL_HINTS: Mapping[str, str] = {
    each: name for name, offered in _OFFERED.items() for each in offered.split()
}
"""The one place where core names plugins: what to `pip install` for a name that nobody offers."""

DEFAULTS: Mapping[str, str] = {
    "backends": "local",
    "models": "tabular",
    "caches": "parquet",
    "executors": "local",
}
"""What a config means that names none; a backend names its own defaults for processor, loader
and trainer."""


@dataclass(frozen=True)
class Offer:
    """One entry point: who offers `name` in the group `distcore.<kind>`."""

    kind: str
    name: str
    value: str
    distribution: str
    version: str

    @property
    def who(self) -> str:
        """Distribution and version, for people."""
        return f"{self.distribution} {self.version}"


@dataclass(frozen=True)
class Encoder:
    """Who encodes values: a distribution, its version, and that of the data it makes.

    Two releases with one data version encode alike, so caches and models of one are good for the
    other."""

    distribution: str
    version: str
    data: str

    @property
    def who(self) -> str:
        """For people."""
        stated = f" (data version {self.data})" if self.data != self.version else ""
        return f"{self.distribution} {self.version}{stated}"

    @property
    def encoding(self) -> tuple[str, str]:
        """Equal for releases that encode alike."""
        return self.distribution, self.data

    def as_json(self) -> dict[str, str]:
        return vars(self).copy()


class Installed:
    """The offers of this process. block: a plugin's name, its `kind:name`, or its distribution;
    added to DISTCORE_BLOCK."""

    def __init__(self, block: Iterable[str] = ()) -> None:
        self.block = frozenset(block) | frozenset(blocked_by_environment())
        self._blocked = set(map(normalised, self.block))
        self._every: Mapping[str, Sequence[Offer]] | None = None

    def offers(self, kind: str, name: str | None = None) -> list[Offer]:
        """Every entry point of the kind (and name) that is not blocked; metadata are read once."""
        every = self._every = self._every or all_offers()  # another thread may make it None
        found = [each for each in every.get(kind, ()) if name in (None, each.name)]
        return [offer for offer in found if not self.is_blocked(offer)]

    def is_blocked(self, offer: Offer) -> bool:
        """Whether it is not used: it is blocked, or a lock does not name its distribution."""
        lock = locked()
        unknown = lock is not None and offer.distribution not in lock
        named = not self.block.isdisjoint({offer.name, f"{offer.kind}:{offer.name}"})
        return unknown or named or normalised(offer.distribution) in self._blocked

    def names(self, kind: str) -> list[str]:
        return sorted({offer.name for offer in self.offers(kind)})

    def find(self, kind: str, name: str) -> Offer:
        """The one distribution that offers the name. Raises PluginNotFound or PluginConflict."""
        if not (matches := self.offers(kind, name)):
            self._every = None  # it may have been installed meanwhile
            if not (matches := self.offers(kind, name)):
                raise self._not_found(kind, name)
        if len(matches) > 1:
            raise PluginConflict(
                f"Two distributions offer {singular(kind)} {name!r}: "
                f"{' and '.join(each.who for each in matches)}. "
                f"Uninstall one, or block it: DISTCORE_BLOCK={matches[-1].distribution}."
            )
        return matches[0]

    def _not_found(self, kind: str, name: str) -> PluginNotFound:
        role, installed = singular(kind), self.names(kind)
        parts = [f"No installed plugin offers {role} {name!r}."]
        blocked = any(offer.name == name for offer in all_offers().get(kind, ()))
        if blocked:
            parts = [
                f"{role.capitalize()} {name!r} is installed but blocked (plugins.block or "
                "DISTCORE_BLOCK), or not in the lock (DISTCORE_LOCK)."
            ]
        near = difflib.get_close_matches(name, installed, n=2)
        if near:
            parts.append(f"Did you mean {' or '.join(map(repr, near))}?")
        parts.append(f"Installed: {', '.join(installed) or 'none'}.")
        if f"{kind}:{name}" in INSTALL_HINTS and not blocked:
            parts.append(f"To get it: pip install {INSTALL_HINTS[f'{kind}:{name}']}")
        elif not near and not blocked:
            parts.append("Install the distribution that offers it, or name one that is installed.")
        return PluginNotFound(" ".join(parts))


def normalised(distribution: str) -> str:
    """The name as pip compares it (PEP 503): `distcore_ray` is distcore-ray."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def blocked_by_environment() -> tuple[str, ...]:
    """Names in DISTCORE_BLOCK (comma-separated)."""
    return tuple(filter(None, map(str.strip, os.environ.get("DISTCORE_BLOCK", "").split(","))))


def all_offers() -> Mapping[str, Sequence[Offer]]:
    """{kind: every entry point of the group `distcore.<kind>`, blocked or not}, of kinds unknown to
    core, too. A distribution that is found twice on sys.path is there once; read again only when a
    folder of sys.path has changed."""
    return _read_offers(tuple(map(_state, sys.path)))


def _state(folder: str) -> tuple[int, ...]:
    """Another one once something was installed there, or removed."""
    try:
        found = os.stat(folder or ".")
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns


@lru_cache(maxsize=1)
def _read_offers(state: tuple[tuple[int, ...], ...]) -> Mapping[str, Sequence[Offer]]:
    entries: Any = metadata.entry_points()
    # Python 3.11 has them by group, and each `select` there goes through all of them.
    flat = chain.from_iterable(dict.values(entries)) if isinstance(entries, dict) else entries
    seen: dict[tuple[str, ...], Offer] = {}
    known: dict[Any, tuple[str, str]] = {None: ("unknown", "?")}
    for entry in flat:
        if entry.group.startswith(GROUPS):
            if entry.dist not in known:
                known[entry.dist] = "", ""
                with suppress(FileNotFoundError):  # pip is just removing it
                    stated = entry.dist.metadata  # each asking reads the whole METADATA
                    known[entry.dist] = stated["Name"], stated["Version"]
            name, version = known[entry.dist]
            offer = Offer(entry.group.removeprefix(GROUPS), entry.name, entry.value, name, version)
            seen.setdefault((offer.kind, offer.name, name, offer.value), offer)
    found: dict[str, list[Offer]] = {}
    named = [each for each in seen.values() if each.distribution]
    for offer in sorted(named, key=lambda each: (each.kind, each.name, each.distribution)):
        found.setdefault(offer.kind, []).append(offer)
    return found
