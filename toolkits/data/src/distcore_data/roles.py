"""The roles that this toolkit declares: how datasets are read and split, and where
caches and results lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from distcore_core.contracts import MEMBER_HOOK, Role
from distcore_data.sources.formats import DataFormat
from distcore_data.stores.store import Store

if TYPE_CHECKING:
    from distcore_data.encoding.splitter import Splitter

OWN = "distcore-data"
"""The distribution of the built-in members. What they encode is told apart by CACHE_VERSION."""

SOURCE = Role("sources", MEMBER_HOOK, "data format", DataFormat)  # type: ignore[type-abstract]
STORE = Role("stores", MEMBER_HOOK, "store", Store)  # type: ignore[type-abstract]
# `object` in place of the class, which needs numpy.
SPLITTER = Role("splitters", MEMBER_HOOK, "splitter", cast("type[Splitter]", object))
