"""The roles that this toolkit declares: how datasets are read, and where caches and results lie."""

from __future__ import annotations

from distcore_core.contracts import MEMBER_HOOK, Role
from distcore_data.sources.formats import DataFormat
from distcore_data.stores.store import Store

OWN = "distcore-data"
"""The distribution of the built-in members. What they encode is told apart by CACHE_VERSION."""

SOURCE = Role("sources", MEMBER_HOOK, "data format", DataFormat)  # type: ignore[type-abstract]
STORE = Role("stores", MEMBER_HOOK, "store", Store)  # type: ignore[type-abstract]
