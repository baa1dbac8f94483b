"""Rows as Modin keeps them, pandas blocks, without changing a bit of them: every column stays the
Arrow array it is.

pandas' own types would not do: they have one missing value where Arrow has null beside NaN, and
turn integers with missing values into floats. Columns of pandas' ArrowExtensionArray hold the Arrow
array itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from distcore_core.contracts import Block, Partition, ShardPlan
from distcore_data import cluster_tasks as tasks
from distcore_data.arrow import one_array


def frame_of(table: pa.RecordBatch) -> pd.DataFrame:
    """The rows as a pandas block; nothing is copied."""
    columns = {
        name: pd.arrays.ArrowExtensionArray(pa.chunked_array([column]))
        for name, column in zip(table.schema.names, table.columns, strict=True)
    }
    return pd.DataFrame(columns, copy=False)


def table_of(block: pd.DataFrame) -> pa.RecordBatch:
    """The rows of such a block, bit for bit."""
    names = list(block.columns)
    return pa.RecordBatch.from_arrays(
        [one_array(block[name].array.__arrow_array__()) for name in names], names=names
    )


def read(
    index: int, partition: Partition, partial: Callable[[Block], Any], marks: str | None
) -> tuple[pd.DataFrame | None, tasks.Folded]:
    """Task: the rows of a partition as a block, and their statistics. None if there are no rows,
    or it failed."""
    table = tasks.read(index, partition, marks)
    folded = tasks.fold(index, table, partial, marks)
    if isinstance(table, tasks.Failure) or folded.failure is not None or not table.num_rows:
        return None, folded
    return frame_of(table), folded


def merge(merge_two: Callable[[Any, Any], Any], *parts: tasks.Folded) -> tasks.Folded:
    """Task: the statistics of several partitions as one."""
    return tasks.merge_folded(merge_two, parts)


def write(
    function: Callable[[ShardPlan, list[Block]], Any],
    plan: ShardPlan,
    pieces: Sequence[tasks.Slice],
    marks: str | None,
    *blocks: pd.DataFrame,
) -> Any:
    """Task: function(plan, its rows). blocks: the whole block of each slice."""
    return tasks.write(function, plan, pieces, [table_of(block) for block in blocks], marks)
