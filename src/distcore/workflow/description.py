"""What a run says of itself: description.json, and which plugins it uses, who offers each, and
what named it."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING

from distcore_core.contracts import JSON, LOADER, PROCESSOR, SECTION, TRAINER
from distcore_data.printable import listed
from distcore_data.roles import STORE
from distcore_data.sources.registry import AUTO
from distcore_data.stores.addresses import SCHEMES, is_url
from distcore_data.threads import processors

if TYPE_CHECKING:
    from distcore.workflow.session import Session
    from distcore_core.registry.index import Offer
    from distcore_data.cache import Cache
    from distcore_data.dataset import Data

NAMED = "named in the config"


def describe(session: Session, data: Data, cache: Cache) -> JSON:
    """What description.json says: config without credentials, data digest, plugins with
    versions, seed, environment."""
    from importlib import metadata

    return {
        "command": session.command,
        "config": session.config.as_json(),
        "data": data.description(cache),
        "backend": {"name": session.backend_name, "reason": session.reason},
        "random_seed": session.config.random_seed,
        "plugins": written(session, data),
        "environment": {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "processors": processors(),
            **{
                name: metadata.version(name)
                for name in ("distcore", "torch", "pyarrow", "numpy", "torchmetrics")
            },
        },
    }


def used(session: Session, data: Data) -> list[tuple[Offer, str]]:
    """Each plugin that the run uses, and why, in the order in which work meets them.

    Members of the roles that toolkits and plugins declare are there if another distribution offers
    them.

    Raises:
        PluginError: Nobody offers one of them, or two do.
    """
    found: dict[tuple[str, str], str] = {}
    for kind, name, why in (
        *_roles(session),
        *_features(session),
        *_data(session, data),
        *_members(session),
    ):
        found.setdefault((kind, name), why)
    return [(session.plugins.find(kind, name), why) for (kind, name), why in found.items()]


def written(session: Session, data: Data) -> list[JSON]:
    """The same as JSON, for files."""
    return [vars(offer) for offer, _ in used(session, data)]


def _roles(session: Session) -> Iterator[tuple[str, str, str]]:
    config, default = session.config, f"default of the backend {session.backend_name}"
    yield "backends", session.backend_name, session.reason
    for role in (PROCESSOR, LOADER, TRAINER):
        yield (
            role.kind,
            session.reference(role).name,
            NAMED if config.backend.named(role) else default,
        )
    for kind, reference in (("caches", config.backend.cache_format), ("models", config.model)):
        yield (
            kind,
            reference.type,
            NAMED if reference.named else "default, as the config names none",
        )


def _features(session: Session) -> Iterator[tuple[str, str, str]]:
    types: dict[str, list[str]] = {}
    for each in session.features.specifications:
        types.setdefault(each["type"], []).append(each["name"])
    for name, features in types.items():
        yield "features", name, f"type of {listed(features, 4)}"


def _data(session: Session, data: Data) -> Iterator[tuple[str, str, str]]:
    if data.dataset is not None:
        yield "splitters", session.config.preprocessing.split.type, "preprocessing.split"
    for name in data.formats(session.plugins):
        if name != AUTO:
            given = data.format is not None and data.format.lower() == name
            yield "sources", name, "named as the data's format" if given else "what the data are"


def _members(session: Session) -> Iterator[tuple[str, str, str]]:
    """Extensions, sections, and what these and the others name from outside."""
    config, plugins = session.config, session.plugins
    for extension in config.extensions:
        yield "extensions", extension.type, NAMED
    for name in config.sections:
        yield SECTION.kind, name, NAMED
    plain = config.as_json()
    for name in ("trainer", "preprocessing"):  # they were read before the session had its plugins
        plugins.make(SECTION, name, given=plain.get(name) or {}, plugins=plugins)
    for kind, name in sorted(plugins.named_members):
        yield kind, name, NAMED
    places = {"backend.cache_dir": config.backend.cache_dir, "--output_directory": session.home}
    for what, place in places.items():
        scheme = str(place).partition("://")[0].lower()
        if place is not None and is_url(place) and scheme not in SCHEMES:
            yield STORE.kind, scheme, f"address in {what}"
