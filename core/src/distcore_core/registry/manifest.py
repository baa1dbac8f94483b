"""A static manifest: what a distribution offers, as `distcore.json` in its package says it, so that
listing and the schema need not import it. `distcore_testing.ManifestSuite` compares it with the
code, and `python -m distcore_testing.manifest` writes it.

    {"api": [1, 0],
     "offers": {"extensions": {"lines": {"data_version": "1", "options": {"": {JSON Schema}}}}}}

`distcore_testing.quality` adds {"quality": {"tier": "gold", "files": sha256, …}}.

options: by role ("input" or "output" of a feature, else ""); null: it has none there; a role that
is not named is not played.
"""

from __future__ import annotations

import functools
import importlib.util
import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from distcore_core.registry.index import Offer
from distcore_core.registry.lock import files_of

NAME = "distcore.json"
TIERS = ("bronze", "silver", "gold")
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Stated:
    """What a manifest says of one offer. api: as DISTCORE_API. data_version: as DATA_VERSION, or
    None. options: {role: JSON Schema or None}."""

    api: tuple[int, int]
    data_version: str | None
    options: dict[str, dict[str, Any] | None]


def stated(offer: Offer) -> Stated | None:
    """What the manifest of its package says of an offer; None: there is none that can be read, or
    it does not name the offer. Nothing is imported."""
    try:
        whole = _of(offer)
        found = whole["offers"][offer.kind][offer.name]
        major, minor = whole["api"]
        return Stated((int(major), int(minor)), found["data_version"], dict(found["options"]))
    except UNREADABLE:
        return None


def quality(offer: Offer) -> str:
    """The tier that the suites gave its distribution; "" if none did, or for other files than
    these. Nothing is imported."""
    try:
        said = _of(offer)["quality"]
        tier: str = TIERS[TIERS.index(said["tier"])]
        return tier if said["files"] == digest_of(offer.distribution) else ""
    except UNREADABLE:
        return ""


def digest_of(distribution: str) -> str:
    """sha256 over all files of a distribution but its manifest."""
    files = {name: each for name, each in files_of(distribution).items() if Path(name).name != NAME}
    return sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _of(offer: Offer) -> Any:
    return _read(offer.value.partition(":")[0].partition(".")[0])


@functools.cache
def _read(package: str) -> Any:
    """The manifest of a top-level package, looked for where its import would."""
    spec = importlib.util.find_spec(package)
    roots = (spec and spec.submodule_search_locations) or ()
    text = next((Path(each, NAME) for each in roots if Path(each, NAME).is_file()), None)
    return json.loads(text.read_text("utf-8")) if text is not None else {}
