"""List every plugin with its state. One with a manifest is not imported; each other is loaded in a
child process (probe.py): one that cannot be is a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from importlib.util import find_spec
from types import SimpleNamespace

from distcore.workflow.probe import ask
from distcore_core.contracts import ROLES
from distcore_core.errors import PluginError
from distcore_core.registry.index import Offer, all_offers
from distcore_core.registry.loader import check_api
from distcore_core.registry.lock import locked, refuse_changed
from distcore_core.registry.manager import Plugins
from distcore_core.registry.manifest import Stated, quality, stated

LISTING_SECONDS = 10.0
"""How long one plugin may take to load while listing."""


@dataclass(frozen=True)
class Row:
    """One line of `distcore plugins`. state: ok, broken or blocked; error: why it is broken, or
    blocked by no name. quality: the tier that its suites gave these very files, or none."""

    role: str
    name: str
    distribution: str
    version: str
    state: str
    error: str = ""
    quality: str = ""


def rows(
    plugins: Plugins, seconds: float = LISTING_SECONDS, kinds: Sequence[str] | None = None
) -> list[Row]:
    """A row for every entry point of every kind, core's own first.

    Args:
        plugins: Those that are installed, and which of them are blocked.
        seconds: The deadline for one plugin's import.
        kinds: Those alone.
    """
    every = all_offers()
    kinds = kinds or (*ROLES, *sorted(every.keys() - ROLES.keys()))
    offers = [offer for kind in kinds for offer in every.get(kind, ())]
    wanted = [offer for offer in offers if not plugins.is_blocked(offer)]
    found = {
        _key(offer): _row(offer, "blocked", _why(offer))
        for offer in offers
        if plugins.is_blocked(offer)
    }
    for offer in _duplicates(wanted):
        others = [
            each
            for each in wanted
            if (each.kind, each.name) == (offer.kind, offer.name) and each != offer
        ]
        who = ", ".join(f"{each.distribution} {each.version}" for each in others)
        found[_key(offer)] = _row(offer, "broken", f"also offered by {who}; uninstall or block one")
    for offer in wanted:
        said = None if _key(offer) in found else stated(offer)
        if said is not None:
            found[_key(offer)] = _by_manifest(offer, said)
    todo = [offer for offer in wanted if _key(offer) not in found]
    for offer, answer in zip(todo, ask(todo, "load", seconds, plugins.block), strict=True):
        error = answer.get("error", "")
        found[_key(offer)] = _row(offer, "broken" if error else "ok", error)
    return [found[_key(offer)] for offer in offers]


def together(found: Sequence[Row]) -> list[Row]:
    """For people: the members of one distribution that are well share a row, in roles of many
    small ones."""
    shown: dict[tuple[str, ...], Row] = {}
    for row in found:
        alone = row.role in ROLES or row.state != "ok"
        key = (row.role, row.distribution, row.version, row.name if alone else "", row.error)
        shown[key] = replace(row, name=f"{shown[key].name}, {row.name}") if key in shown else row
    return list(shown.values())


def _why(offer: Offer) -> str:
    lock = locked()
    return "" if lock is None or offer.distribution in lock else "not in the lock"


def _by_manifest(offer: Offer, said: Stated) -> Row:
    """The row of a plugin that is not imported, because its manifest tells of it."""
    try:
        refuse_changed(offer.distribution, offer.who)
        check_api(offer, SimpleNamespace(DISTCORE_API=said.api))
    except PluginError as error:
        return _row(offer, "broken", str(error))
    module = offer.value.partition(":")[0]
    if not _is_there(module):
        return _row(offer, "broken", f"{module} is missing; reinstall {offer.distribution}")
    return _row(offer, "ok")


def _is_there(module: str) -> bool:
    """Whether the module would be found, and those above it. None is imported, as those above it
    would be by `find_spec`."""
    name, *below = module.split(".")
    spec = find_spec(name)
    for each in below:
        if spec is None:
            return False
        name = f"{name}.{each}"
        spec = PathFinder.find_spec(name, spec.submodule_search_locations or [])
    return spec is not None


def _key(offer: Offer) -> tuple[str, ...]:
    return (offer.kind, offer.name, offer.distribution, offer.value)


def _row(offer: Offer, state: str, error: str = "") -> Row:
    tier = quality(offer) if state == "ok" else ""
    return Row(offer.kind, offer.name, offer.distribution, offer.version, state, error, tier)


def _duplicates(offers: list[Offer]) -> list[Offer]:
    names = [(offer.kind, offer.name) for offer in offers]
    return [offer for offer in offers if names.count((offer.kind, offer.name)) > 1]
