"""Sources whose columns can be read apart, which a processor asks for if it keeps the rows that it
read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from distcore_core.contracts import Partition, Source

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
