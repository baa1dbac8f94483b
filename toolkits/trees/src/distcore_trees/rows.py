"""Encoded rows as one matrix of inputs and one column of targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distcore_core.contracts import Batch, FeatureSet, OpenJob, Split

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distcore_trees.outputs import Output


@dataclass(frozen=True)
class Rows:
    """The rows of a split that have a target, for one output feature.

    inputs: [rows, columns]. categories: which of these columns are codes, whose order means
        nothing. target: [rows]: 0 or 1, a class's code, or an encoded number. weight: [rows], or
        None if all rows count alike.
    kept: which rows of the split these are.
    """

    inputs: NDArray[np.float32]
    categories: Sequence[int]
    target: NDArray[Any]
    weight: NDArray[np.float32] | None
    kept: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        output: Output,
        inputs: NDArray[np.float32],
        target: NDArray[Any],
        categories: Sequence[int],
    ) -> Rows:
        """Those of the split that have a target. inputs, target: of the whole split."""
        kept = output.known(target)
        if not kept.all():
            inputs, target = inputs[kept], target[kept]
        return cls(inputs, categories, target, output.weights(target), kept)


def beside(batch: Batch, names: Sequence[str]) -> NDArray[np.float32]:
    """Columns side by side, [B, columns]; codes are exact in float32 up to 2**24."""
    columns = [np.asarray(batch[name], np.float32).reshape(batch.rows, -1) for name in names]
    return np.concatenate(columns, axis=1)


def matrix(job: OpenJob, split: Split) -> NDArray[np.float32]:
    """The inputs of a split, [rows, columns]."""
    names = [each.name for each in job.features.inputs]
    return np.concatenate([beside(batch, names) for batch in job.batches(split, names)])


def target_of(job: OpenJob, split: Split, name: str) -> NDArray[Any]:
    """The encoded target of a split, [rows]."""
    return np.concatenate([np.asarray(batch[name]) for batch in job.batches(split, [name])])


def category_columns(features: FeatureSet) -> list[int]:
    """Which columns of `matrix` are codes."""
    found: list[int] = []
    start = 0
    for each in features.inputs:
        column = features.columns[each.name]
        assert column.width is not None  # refused before
        if column.dtype == "int32" and column.width == 1:
            found.append(start)
        start += column.width
    return found
