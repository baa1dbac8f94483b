"""What a model answers, decoded for people: the columns of every output feature, side by side."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from distcore_core.errors import UserError
from distcore_data.arrow import from_numpy, scalar, with_nulls
from distcore_data.printable import printable

if TYPE_CHECKING:
    import torch

    from distcore_core.contracts import FeatureSet
    from distcore_data.features import Features

DECODED_ROWS = 65_536
"""Rows whose outputs are decoded together."""

LARGE_BYTES = 4 << 20
"""Outputs of a forward pass that are decoded by themselves."""

BLOCK_BYTES = 16 * LARGE_BYTES
"""Of outputs that are decoded together, whatever a row has."""

ROW = "row"
"""The column of an evaluation's predictions that says of which row of the dataset each is, from 0;
the names of the others begin with their feature's."""

Outputs = Mapping[str, np.ndarray]

log = logging.getLogger("distcore")


class Answers(dict[str, np.ndarray]):
    """`Outputs` of a network, which keep what its losses are computed from: of a certain row a
    probability in float32 is 1, and does not tell how certain.

    Attributes:
        logits: {output feature: [B] or [B, classes]}, where the network is.
    """

    def __init__(self, outputs: Outputs, logits: Mapping[str, torch.Tensor]) -> None:
        super().__init__(outputs)
        self.logits = logits


def clipped(features: FeatureSet, name: str, output: np.ndarray) -> np.ndarray:
    """Values of an output feature [B] as a network would answer them: of a number within its
    `clip`, of which a trainer without logits knows nothing."""
    if features.types[name] != "number":
        return output
    import torch

    feature = next(each for each in features.outputs if each.name == name)
    ends = torch.tensor([-torch.inf, torch.inf])
    low, high = feature.network().output(ends, features.metadata[name]).tolist()
    return np.clip(output, low, high)


class RowNumbers:
    """Which rows of the dataset an evaluation's predictions are of: those of a split, or all that
    have their targets. `tell` them in order, ahead of the predictions."""

    def __init__(self, *known: np.ndarray) -> None:
        self._told = deque(known)

    def tell(self, numbers: np.ndarray) -> None:
        """The next rows: int64 [n]."""
        self._told.append(numbers)

    def beside(self, predictions: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The predictions, which are in the order of the rows, with the column ROW before them."""
        left = np.zeros(0, np.int64)
        for batch in predictions:
            while len(left) < batch.num_rows:
                left = np.concatenate([left, self._told.popleft()])
            numbers, left = left[: batch.num_rows], left[batch.num_rows :]
            columns = [from_numpy(numbers), *batch.columns]
            yield pa.record_batch(columns, schema=with_row_numbers(batch.schema))


def with_row_numbers(predictions: pa.Schema) -> pa.Schema:
    """The schema of `RowNumbers.beside`."""
    return pa.schema([(ROW, pa.int64()), *predictions])


def numbered_from(start: int, predictions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """An evaluation's predictions of a part of a dataset that begins at a row of it."""
    import pyarrow.compute as pc

    for batch in predictions:
        numbers = pc.add(batch.column(ROW), scalar(start))
        yield pa.record_batch([numbers, *batch.columns[1:]], schema=batch.schema)


def decoded(features: Features, outputs: Outputs) -> pa.RecordBatch:
    """What people read: the columns of every output feature, side by side.

    Raises:
        UserError: Two of them have a column of one name."""
    columns: dict[str, pa.Array] = {}
    owners: dict[str, str] = {}
    for feature in features.outputs:
        found = feature.network().predictions(
            outputs[feature.name], features.metadata[feature.name]
        )
        for name in found.schema.names:
            other = owners.setdefault(name, feature.name)
            if other != feature.name:
                raise UserError(
                    f"Output features {other!r} and {feature.name!r} have a column of predictions "
                    f"of the same name, {name!r}. Give one of them another name, and the column "
                    "that it reads as its `column`."
                )
        columns |= dict(zip(found.schema.names, found.columns, strict=True))
    return pa.record_batch(columns)


def decoded_passes(features: Features, passes: Iterator[Outputs]) -> Iterator[pa.RecordBatch]:
    """`decoded` of each forward pass.

    What many passes answer lies in one block, and is decoded together. Else small results, which
    stay, would lie between the large blocks of one pass and those of the next, and none would find
    room where one was: a kilobyte more for each row until a row group is written."""
    block: dict[str, np.ndarray] = {}
    sizes: list[int] = []
    for outputs in passes:
        count, filled = len(next(iter(outputs.values()))), sum(sizes)
        large = sum(each.nbytes for each in outputs.values()) > LARGE_BYTES
        if sizes and (large or filled + count > len(next(iter(block.values())))):
            yield from _slices(features, block, sizes)
            sizes, filled = [], 0
        if large:
            yield decoded(features, outputs)
            continue
        if not sizes:
            wide = max(1, sum(each[:1].nbytes for each in outputs.values()))
            room = max(min(DECODED_ROWS, BLOCK_BYTES // wide), count)
            block = {
                name: np.empty((room, *each.shape[1:]), each.dtype)
                for name, each in outputs.items()
            }
        for name, each in outputs.items():
            block[name][filled : filled + count] = each
        sizes.append(count)
    if sizes:
        yield from _slices(features, block, sizes)


def empty_schema(features: Features) -> pa.Schema:
    """The columns of predictions, from a prediction of no rows."""
    outputs = {}
    for feature in features.outputs:
        shape = feature.output_shape(features.metadata[feature.name])
        outputs[feature.name] = np.zeros((0, *shape), np.float32)
    return decoded(features, outputs).schema


def spread(
    parts: Sequence[pa.RecordBatch], kept: np.ndarray, rows: int, schema: pa.Schema
) -> pa.RecordBatch:
    """Predictions of some of `rows` rows as a batch of all of them, nulls elsewhere. kept: their
    places."""
    table = pa.Table.from_batches(parts, schema)
    places = np.full(rows, -1)
    places[kept] = np.arange(len(kept))
    taken = table.take(with_nulls(places, places >= 0))
    return (
        taken.combine_chunks().to_batches()[0] if rows else pa.RecordBatch.from_pylist([], schema)
    )


def finite_or_told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; at their end a warning for each column in which numbers are not finite,
    with how many."""
    found: dict[str, tuple[int, int]] = {}
    rows = 0
    for batch in batches:
        numbers = batch.column(ROW) if ROW in batch.schema.names else None
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            bad = _not_finite(column)
            if bad.size:
                place = int(bad[0])
                row = rows + place if numbers is None else numbers[place].as_py()
                count, first = found.get(name, (0, row))
                found[name] = (count + bad.size, first)
        rows += batch.num_rows
        yield batch
    for name, (count, first) in found.items():
        log.warning(
            "%s is not finite in %d of %d rows, the first of them row %d (from 0): the model says "
            "nothing about these, whatever stands in other columns of the same output. Look for "
            "extreme values in their inputs.",
            *(printable(name), count, rows, first),
        )


# ------------------------------------------------------------------ inside


def _slices(features: Features, block: Outputs, sizes: Sequence[int]) -> Iterator[pa.RecordBatch]:
    whole = decoded(features, {name: each[: sum(sizes)] for name, each in block.items()})
    for start, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
        yield whole.slice(start, size)


def _not_finite(column: pa.Array) -> np.ndarray:
    """The rows of a column (numbers, or lists of them) that hold NaN or infinity."""
    import pyarrow.compute as pc

    lists = pt.is_list(column.type) or pt.is_fixed_size_list(column.type)
    values = column.flatten() if lists else column
    total = pc.sum(values).as_py() if pt.is_floating(values.type) else None
    if total is None or np.isfinite(total):
        return np.zeros(0, np.int64)
    bad = np.flatnonzero(~pc.fill_null(pc.is_finite(values), True).to_numpy(zero_copy_only=False))
    return np.unique(pc.list_parent_indices(column).to_numpy()[bad]) if lists else bad
