"""From a dataset to a cache: sources, processors, cache formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, BinaryIO, Protocol, runtime_checkable

from distcore_core.contracts.values import Block, ShardPlan, T

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

__all__ = ["CacheFormat", "Partition", "Processor", "ShardReader", "Source", "SourceBase"]


@runtime_checkable
class Partition(Protocol):
    """A piece of a source that one task reads by itself. Small and picklable: a description, not
    the rows."""

    def read(self) -> pa.RecordBatch:
        """Its rows, a column of the batch for each that was declared.

        Raises:
            DataError: A value is none of the type that was asked for; names file, line and column.
        """
        ...


@runtime_checkable
class Source(Protocol):
    """A dataset: the declared columns, typed as asked, as partitions in row order.

    Inherit from `SourceBase`, which has the members that most need not think of."""

    def digest(self) -> str:
        """Digest of the content (never of path or time)."""
        ...

    def partitions(self, target_bytes: int) -> Sequence[Partition]:
        """Cut the dataset, in row order.

        Args:
            target_bytes: About so many of the dataset's bytes each.

        Raises:
            DataError: It cannot be read, or lacks a column.
        """
        ...

    def rows(self) -> int | None:
        """How many rows it has; None if it had to read them to know."""
        ...

    def check_unchanged(self, content: bool = True) -> None:
        """Look whether the dataset is as it was when it was opened.

        Args:
            content: Read it again if that is the only way to know; False: only look at what costs
                nothing.

        Raises:
            DataError: It is not, and no row that was read counts; names what has changed.
        """
        ...

    def close(self) -> None:
        """Remove what was unpacked or downloaded for reading."""
        ...


class SourceBase:
    """A dataset that is counted by reading it, and that made nothing for being read."""

    def rows(self) -> int | None:
        """Not known."""
        return None

    def close(self) -> None:
        """Nothing to remove."""


@runtime_checkable
class Processor(Protocol):
    """The engine that turns raw rows into encoded shards.

    The pure functions it runs come from core, so every engine gives the same answer; only where
    they run differs. One pass of `fold` reads each partition exactly once and keeps the rows
    (typed, compact) for `write_shards`.
    """

    def scan(self, source: Source, scratch: Path | None = None) -> int:
        """Cut the source into partitions in row order.

        Args:
            scratch: A folder on this machine for rows that are kept; its owner deletes it in the
                end.

        Returns:
            How many partitions there are.
        """
        ...

    def fold(
        self, partial: Callable[[Block], T], merge: Callable[[T, T], T]
    ) -> tuple[T, list[int]]:
        """Read every partition once.

        Args:
            partial: From a block to its share; importable or an object that pickles, as is `merge`.
            merge: Of two shares, in any order.

        Returns:
            The merged value, and the rows of each block in block order.
        """
        ...

    def write_shards(
        self, plans: Sequence[ShardPlan], write: Callable[[ShardPlan, list[Block]], T]
    ) -> list[T]:
        """Write every shard.

        Args:
            plans: Which rows of which blocks make up each.
            write: Called with a plan and the slices that make up its rows, wherever it runs.

        Returns:
            What `write` returned, in the order of the plans; what it raises is raised as it is.
        """
        ...

    def close(self) -> None:
        """Drop what was kept."""
        ...


@runtime_checkable
class ShardReader(Protocol):
    """An open shard: its length and ranges of its rows."""

    rows: int

    def read(
        self, start: int = 0, stop: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Some rows.

        Args:
            start, stop: Rows [start, stop) of the shard; None: to its end.
            columns: Those alone, in this order; None: every one.

        Returns:
            A batch that stays as it is, whatever is read or closed after it.

        Raises:
            IndexError: The shard has no such rows.
            ValueError: Its bytes are not those that were written.
        """
        ...

    def close(self) -> None:
        """Close the file too."""
        ...


@runtime_checkable
class CacheFormat(Protocol):
    """How encoded columns lie in one file. Equal tables give equal bytes."""

    suffix: str

    def write(self, target: BinaryIO, table: pa.Table) -> None:
        """Write a shard.

        Args:
            target: New and empty; seekable.
            table: Columns of float32, int32, int8, FixedSizeList, or List<int32>, without nulls.

        Raises:
            OSError: As the target raised it, such as for a full disk.
        """
        ...

    def open(self, source: BinaryIO) -> ShardReader:
        """Open a shard.

        Args:
            source: Seekable; closing the reader closes it.

        Raises:
            ValueError: Its bytes are not those that were written; nothing in them was run, and
                memory was bounded by what they hold.
        """
        ...
