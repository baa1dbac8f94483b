"""Sources whose columns can be read apart, which a processor asks for if it keeps the rows that it
read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from distcore_core.contracts import Partition, Source

T = TypeVar("T")

TARGET_BYTES = 16 << 20
"""Bytes of a partition or tile at most, as processors ask for them: a task of it takes some tenths
of a second, calls for each column of it cost nothing, and one for each CPU is in memory."""

SMALLEST_BYTES = 1 << 20

SHARE = 4
"""Partitions that each CPU should get at least."""

COLUMN_BYTES = 48 << 10
"""What a column should have of a tile: calls for each column of less cost more than its work."""

MOST_TIMES = 3
"""As large as its reader asked for a tile may be, to that end."""


@runtime_checkable
class Tiled(Protocol):
    """A `contracts.Source` that can be cut into rows and columns.

    Of rows of a thousand columns a partition of bounded size has a few thousand only, and each call
    for a column of it costs more than its work. A tile has some columns of more rows.
    """

    def tiles(self, target_bytes: int) -> Sequence[Sequence[Partition]]:
        """The rows in order, as `partitions` gives them, each piece as one partition or several
        that have the same rows and between them every declared column once.

        Args:
            target_bytes: Bytes of a tile at most, when it is decoded; those of one column may be
                more, and of a source that cannot be cut into columns see `whole_rows`.
        """


def cut_evenly(
    cut: Callable[[int], Sequence[T]],
    cpus: int,
    wanted: int | None = None,
    count: Callable[[Sequence[T]], int] = len,
) -> Sequence[T]:
    """Pieces of TARGET_BYTES, or smaller ones if there would be too few.

    Args:
        cut: Gives the pieces of so many bytes.
        cpus: That work on them.
        wanted: How many there should be; None: SHARE for each CPU, and as many for each, so that
            they end at about the same time.
        count: How many pieces these are.
    """
    pieces = cut(TARGET_BYTES)
    found = count(pieces)
    wanted = wanted or max(SHARE * cpus, -(-found // cpus) * cpus)
    if 0 < found < wanted:
        pieces = cut(max(TARGET_BYTES * found // wanted, SMALLEST_BYTES))
    return pieces


def tiles_of(source: Source, target_bytes: int) -> list[Sequence[Partition]]:
    """The source's tiles; its partitions, if it has none.

    Args:
        target_bytes: Of a tile or partition.
    """
    if isinstance(source, Tiled):
        return list(source.tiles(target_bytes))
    return [(partition,) for partition in source.partitions(target_bytes)]


def whole_rows(
    partitions: Callable[[int], Sequence[Partition]], target_bytes: int, columns: int
) -> list[Sequence[Partition]]:
    """Tiles of a source whose rows must be read whole: partitions, larger ones if there are many
    columns.

    Args:
        partitions: The source's.
        target_bytes: Of a tile.
        columns: How many are declared.
    """
    wanted = max(target_bytes, min(MOST_TIMES * target_bytes, columns * COLUMN_BYTES))
    return [(partition,) for partition in partitions(wanted)]
