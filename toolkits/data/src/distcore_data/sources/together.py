"""Neighbouring partitions read as one: what is done once a partition and column is then done once
for several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa

from distcore_core.contracts import Partition


@runtime_checkable
class Slice(Protocol):
    """A `contracts.Partition` that can be read in one go with those behind it.

    Of rows of a thousand columns a partition of bounded size has a few hundred only, and each call
    for a column of it costs more than its work.
    """

    @property
    def size(self) -> int:
        """How many rows it has."""

    def through(self, last: Partition) -> Partition | None:
        """Its rows and those behind it up to the end of `last`; None if they do not lie in one
        piece."""


def read_together(partitions: Sequence[Partition]) -> tuple[pa.RecordBatch, list[int]]:
    """(the rows of neighbouring partitions, how many each of them has). Raises DataError as
    reading does.

    Args:
        partitions: In row order, at least one.
    """
    runs: list[tuple[Partition, list[int]]] = []
    for each in partitions:
        last, sizes = runs[-1] if runs else (None, [])
        whole = last.through(each) if isinstance(last, Slice) else None
        size = each.size if isinstance(each, Slice) else 0
        if whole is None:
            runs.append((each, [size]))
        else:
            runs[-1] = whole, [*sizes, size]
    batches = [run.read() for run, _ in runs]
    counts = [
        size
        for batch, (_, sizes) in zip(batches, runs, strict=True)
        for size in (sizes if len(sizes) > 1 else [batch.num_rows])
    ]
    return _one(batches), counts


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    return (table.to_batches() or batches)[0]
