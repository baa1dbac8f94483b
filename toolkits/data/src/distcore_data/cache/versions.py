"""Caches of the same data and config that other versions of distcore or of a plugin made: why there
is no hit."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from distcore_core.errors import DistcoreError
from distcore_core.registry.index import Encoder
from distcore_data.cache.files import CacheFiles
from distcore_data.cache.manifest import KEY, MANIFEST, RECIPE_LENGTH, OtherVersion
from distcore_data.stores.local import LocalStore

if TYPE_CHECKING:
    from distcore_data.cache import Cache
    from distcore_data.stores import Store

log = logging.getLogger("distcore")


def tell_other_versions(cache: Cache, now: Mapping[str, Encoder]) -> None:
    """Say in a line which cache of the same data and config is there, and who made it, if there is
    one.

    now: {what encodes: who does}. A courtesy: what cannot be looked at is not told."""
    with suppress(DistcoreError, OSError, ValueError, TypeError, AttributeError):
        store = cache.store()
        for key in _others(store, cache.key):
            files = CacheFiles(store, f"{key}/")
            try:
                made_by = files.manifest(key).made_by
            except OtherVersion as other:
                log.warning("%s A cache for this one is built.", other)
                return
            then = {name: Encoder(**each) for name, each in made_by.items()}
            changed = [
                f"{name} with {then[name].who}, now {each.who}"
                for name, each in now.items()
                if name in then and then[name].encoding != each.encoding
            ]
            if changed:
                log.warning(
                    "The cache %s was built with other versions: %s. One is built for these.",
                    files.home,
                    "; ".join(changed),
                )
                return


def _others(store: Store, key: str) -> list[str]:
    """Keys of caches of the same data and config."""
    recipe = key[:RECIPE_LENGTH]
    if isinstance(store, LocalStore):
        found = [path.name for path in store.root.glob(f"{recipe}*") if (path / MANIFEST).is_file()]
    else:
        names = (name.split("/") for name in store.list())
        found = [at[0] for at in names if at[0].startswith(recipe) and at[1:] == [MANIFEST]]
    return sorted(name for name in found if name != key and KEY.fullmatch(name))
