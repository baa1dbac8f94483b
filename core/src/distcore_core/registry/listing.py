"""List every plugin with its state. Each is loaded in a child process (asking.py): one that cannot be is a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distcore_core.contracts import ROLES
from distcore_core.registry.index import Offer, all_offers
from distcore_core.registry.manager import Plugins
from distcore_core.registry.probe import ask

IMPORT_SECONDS = 10.0
"""How long one plugin may take to load while listing."""


@dataclass(frozen=True)
class Row:
    """One line of `distcore plugins`. state: ok, broken or blocked; error: why it is broken."""

    role: str
    name: str
    distribution: str
    version: str
    state: str
    error: str = ""


def rows(plugins: Plugins, seconds: float = IMPORT_SECONDS, kinds: Sequence[str] = tuple(ROLES)) -> list[Row]:
    """A row for every entry point of every kind. seconds: the deadline for one plugin's import."""
    offers = [offer for kind in kinds for offer in all_offers(kind)]
    wanted = [offer for offer in offers if not plugins.is_blocked(offer)]
    found = {_key(offer): _row(offer, "blocked") for offer in offers if plugins.is_blocked(offer)}
    for offer in _duplicates(wanted):
        others = [each for each in wanted if (each.kind, each.name) == (offer.kind, offer.name) and each != offer]
        who = ", ".join(f"{each.distribution} {each.version}" for each in others)
        found[_key(offer)] = _row(offer, "broken", f"also offered by {who}; uninstall or block one")
    todo = [offer for offer in wanted if _key(offer) not in found]
    for offer, answer in zip(todo, ask(todo, "load", seconds, plugins.block), strict=True):
        error = answer.get("error", "")
        found[_key(offer)] = _row(offer, "broken" if error else "ok", error)
    return [found[_key(offer)] for offer in offers]


def _key(offer: Offer) -> tuple[str, ...]:
    return (offer.kind, offer.name, offer.distribution, offer.value)


def _row(offer: Offer, state: str, error: str = "") -> Row:
    return Row(offer.kind, offer.name, offer.distribution, offer.version, state, error)


def _duplicates(offers: list[Offer]) -> list[Offer]:
    names = [(offer.kind, offer.name) for offer in offers]
    return [offer for offer in offers if names.count((offer.kind, offer.name)) > 1]
