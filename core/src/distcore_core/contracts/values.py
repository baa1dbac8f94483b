"""Plain values that cross between roles and processes: they pickle and compare by content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "API_VERSION",
    "JSON",
    "SPLITS",
    "Block",
    "CacheRef",
    "Column",
    "Credentials",
    "PluginRef",
    "ShardPlan",
    "Split",
]


API_VERSION = (1, 1)
"""Version of these contracts. A plugin written for (1, x) works with every core (1, y >= x), and
with every later one in which its role did not break (`Role.since`)."""

T = TypeVar("T")
JSON = dict[str, Any]
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
COMBINED = "combined"
"""The loss summed over the output features stands under this name among them, as in Ludwig."""


@dataclass(frozen=True, kw_only=True)
class PluginRef:
    """What a worker needs to resolve a plugin again: no plugin object is ever pickled."""

    kind: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One encoded column as it lies in the cache and in a batch.

    dtype: "float32" or "int32"; every fixed-width value is one or more 32-bit words.
    width: values in a row (1 for a number or a code), or None for a ragged column (tokens, set
        members), whose dtype is int32.
    """

    name: str
    dtype: Literal["float32", "int32"]
    width: int | None = 1


# Positional: it is its one field, wrapped so that no repr shows it.
@dataclass(frozen=True)
class Credentials:
    """What a store is opened with: options of its fsspec filesystem. Pickles; no repr shows
    them."""

    options: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class CacheRef:
    """Where a committed cache lies: below directory/key, in a folder or a bucket. Pickles, with
    the credentials."""

    directory: str
    key: str
    credentials: Credentials | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A piece of the raw dataset, in row order.

    index: position among the blocks of this scan (0, 1, …), in row order.
    start: global number of its first row, or None while blocks are still being read out of order.
    table: the declared columns, typed as the features asked (`Feature.raw`).
    """

    index: int
    start: int | None
    table: pa.RecordBatch


@dataclass(frozen=True, kw_only=True)
class ShardPlan:
    """The global rows [start, stop) of shard `index`; cut at fixed row numbers, never at an
    engine's partitions."""

    index: int
    start: int
    stop: int
