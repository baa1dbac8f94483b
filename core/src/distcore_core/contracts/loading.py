"""From a cache to batches: what is encoded, and the loaders that bring it to a trainer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from distcore_core.contracts.backends import Rank
from distcore_core.contracts.values import Column, Split

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

__all__ = ["Batch", "CachedRows", "LoadRequest", "Loader"]


class Batch(Mapping[str, Any]):
    """B encoded rows: {column: float32 or int32 tensor [B] or [B, width], or a ragged column}."""

    __slots__ = ()

    @property
    @abstractmethod
    def rows(self) -> int:
        """B."""

    @property
    def part_rows(self) -> Sequence[int]:
        """Rows of each part, in turn, if the request asked for parts."""
        return ()

    @abstractmethod
    def to(self, device: torch.device, non_blocking: bool = False) -> Batch:
        """The same rows on a device."""

    @abstractmethod
    def part(self, start: int, stop: int) -> Batch:
        """Rows [start, stop), as views."""


@runtime_checkable
class CachedRows(Protocol):
    """An open cache, as a loader reads it. Positions count the rows of a split, from 0."""

    columns: dict[str, Column]

    def rows(self, split: Split) -> int:
        """How many rows a split has."""
        ...

    def read(
        self, split: Split, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Some rows of a split.

        Args:
            start, stop: Rows [start, stop) of the split.
            columns: Those alone, in this order; None: every one.

        Raises:
            CacheError: A shard is damaged or gone.
        """
        ...

    def expect(self, split: Split, start: int, stop: int) -> None:
        """Have rows fetched ahead: they will be read next, in order.

        Args:
            start, stop: Rows [start, stop) of the split.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class LoadRequest:
    """What a loader is asked for: one split, for one rank.

    reader: the open cache. columns: which encoded columns, in the config's order.
    batch_size: rows of a GLOBAL batch (over all ranks). shuffle: False gives the rows in order, cut
        evenly over ranks.
    parts: the global batch is cut into so many, a power of two, and rank r of n gets parts r·parts
    // n and on, whole; a part's rows are the same for every n. 0: any even cut will do.
    device: where batches should arrive; scratch: folder for a packed file when the split is not
        held in memory.
    """

    reader: CachedRows
    split: Split
    columns: Sequence[str]
    batch_size: int
    seed: int
    rank: Rank = field(default_factory=Rank)
    shuffle: bool = True
    parts: int = 0
    device: str = "cpu"
    scratch: str | None = None


@runtime_checkable
class Loader(Protocol):
    """The way from cache to batches of tensors, for one split, one rank and one epoch after
    another.

    It neither uses nor changes the process's own random numbers: what is trained depends on them.
    """

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """This rank's part of the global batches, the same for (seed, epoch); each stays as it is.

        Args:
            epoch: From 0; another one is another order.
            start: The first global batch to give: a resumed run goes on within an epoch.
        """
        ...

    def close(self) -> None:
        """End its threads and remove what it wrote."""
        ...
