"""Predictions: batches through a predictor, decoded for people, in the order of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from distcore_core.errors import DataError, UserError
from distcore_data.features import Features, in_roles
from distcore_torch.batch import Batch, Layout
from distcore_torch.decoding import (
    Answers,
    Outputs,
    RowNumbers,
    clipped,
    decoded_passes,
    empty_schema,
    spread,
)

if TYPE_CHECKING:
    from distcore_core.contracts import FeatureSet, Predictor, Source, Split
    from distcore_data.artifact import Artifact
    from distcore_data.cache.reader import CacheReader
    from distcore_data.encoding.stream import EncodedStream
    from distcore_torch.evaluation import Evaluation

ROWS = 4096
"""Rows of a forward pass unless the user says otherwise: enough to keep every core busy, few
enough for the caches."""

READ_ROWS = 65_536
"""Rows read from a cache at once, unless they are many bytes."""

READ_BYTES = 128 << 20
"""Of what is read from a cache at once, while what was read before is used: 65,536 rows of 20,000
numbers are 5 GB."""

LEAST_PIECES = 64
"""Pieces that a dataset is cut into if it has as many partitions: every CPU of a small cluster
has some to do."""

MOST_TOGETHER = 16
"""Partitions of a piece: its 64 MiB are a second or two of work, beside which what a task costs
does not show."""


def predict_stream(
    artifact: Artifact,
    dataset: Any,
    *,
    batch_size: int | None = None,
    data_format: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decoded predictions of every row of a dataset, in its order, some rows at a time. Raises as
    `open_source` does.

    A row that cannot be predicted (it misses a value of an input whose strategy is drop_row) is
    a row of nulls."""
    with encoded_stream(artifact, dataset, ("input",), data_format) as (source, stream):
        for batches, _ in predicted(artifact, stream, rows_of(batch_size)):
            yield from batches
        source.check_unchanged()


def predicted(
    artifact: Artifact, stream: EncodedStream, rows: int
) -> Iterator[tuple[Iterator[pa.RecordBatch], int]]:
    """(decoded predictions, rows) of each partition of a stream of inputs; rows: of a forward
    pass."""
    features = artifact.features
    layout = layout_of(features, ("input",))
    for piece in stream.pieces():
        batches = forward(artifact, piece.batch, layout, piece.first, rows)
        parts = decoded_passes(features, (outputs for _, outputs in batches))
        if piece.kept is not None:
            parts = iter([spread(list(parts), piece.kept, piece.read, empty_schema(features))])
        yield parts, piece.read


@dataclass(frozen=True)
class Request:
    """Which rows a model is to answer.

    rows: of a forward pass. decode: whether the predictions of an evaluation are wanted, beside
        its scores."""

    dataset: Any
    data_format: str | None
    rows: int
    decode: bool


OTHER_ROWS = (
    "The dataset was another one when its columns to keep were fetched: its rows would stand "
    "beside others' predictions. Do it again, or download it first."
)


def checked(
    batches: Iterator[pa.RecordBatch],
    source: Source,
    evaluation: Evaluation | None = None,
    beside: Source | None = None,
) -> Iterator[pa.RecordBatch]:
    """The batches. Raises DataError after the last, so before they are committed, if the dataset
    changed meanwhile, or no row was scored: metrics of nothing help nobody.

    beside: the dataset as it was fetched once more, for columns that stand beside the batches."""
    yield from batches
    source.check_unchanged()
    if beside is not None:
        from distcore_data.sources.datafile import contents

        if contents(beside) != contents(source):
            raise DataError(OTHER_ROWS)
    if evaluation is not None and not evaluation.rows:
        raise DataError(
            "There is nothing to evaluate: each row lacks a value in a column whose "
            "missing_value_strategy is drop_row, as a target's is by default. Give rows whose "
            "targets are known, or use `distcore predict`."
        )


@contextmanager
def encoded_stream(
    artifact: Artifact, dataset: Any, roles: Sequence[str], data_format: str | None
) -> Iterator[tuple[Source, EncodedStream]]:
    """The dataset, and its rows read and encoded as for training."""
    from distcore_data.dataset import Data
    from distcore_data.encoding.stream import encode_stream

    data, raw = Data(dataset, format=data_format), artifact.features.raw(roles)
    with (
        targets_explained(artifact.features),
        data.open(raw, artifact.delimited(), artifact.plugins) as source,
    ):
        yield source, encode_stream(source, artifact.features, roles)


@contextmanager
def targets_explained(features: Features) -> Iterator[None]:
    """A dataset is opened, perhaps to be scored: of one that lacks its targets alone, say that it
    can be predicted."""
    from distcore_data.sources.tables import ColumnsMissing

    try:
        yield
    except DataError as error:
        why = error.__cause__
        if isinstance(why, ColumnsMissing) and set(why.args).isdisjoint(features.raw(("input",))):
            error.args = (
                f"{error} An evaluation needs the targets; rows without them can be predicted "
                "(`distcore predict`).",
            )
        raise


def forward(
    artifact: Artifact, encoded: pa.RecordBatch, layout: Layout, start: int, rows: int
) -> Iterator[tuple[Batch, Outputs]]:
    """Encoded rows through the predictor, `rows` at a time."""
    from distcore_torch.packing import pack

    for offset in range(0, encoded.num_rows, rows):
        batch = pack(encoded.slice(offset, rows), layout, start + offset)
        yield batch, answers(artifact.predictor, artifact.features, batch)


def answers(predictor: Predictor, features: FeatureSet, batch: Batch) -> Outputs:
    """What a predictor of any trainer answers, each value where its feature allows it. It may
    answer more than the output features."""
    found: Outputs = predictor.predict(batch)
    if isinstance(found, Answers):
        return found
    names = [each.name for each in features.outputs if each.name in found]
    return {**found, **{name: clipped(features, name, found[name]) for name in names}}


def rows_of(batch_size: int | None) -> int:
    """Rows of a forward pass. Raises UserError if the user asks for none."""
    if batch_size is not None and (not isinstance(batch_size, Integral) or batch_size < 1):
        raise UserError(
            f"batch_size is {batch_size!r}, but a batch has at least one row. Give --batch_size 1 "
            "or more."
        )
    return batch_size or ROWS


def layout_of(features: Features, roles: Sequence[str]) -> Layout:
    """How the columns of the given roles lie in a batch."""
    return Layout.of(features.columns[each.name] for each in in_roles(features, roles))


def scored_batches(
    artifact: Artifact,
    stream: EncodedStream,
    rows: int,
    numbers: RowNumbers | None,
    cut: Callable[[], None] | None = None,
) -> Iterator[tuple[Batch, Outputs]]:
    """Every row of a stream of inputs and targets through the model; rows that lack a target are
    left out.

    rows: of a forward pass. numbers: is told which rows are not left out. cut: called where a piece
        of the dataset ends and the batches before were consumed."""
    layout = layout_of(artifact.features, ("input", "output"))
    together = partitions_together(len(stream.partitions))
    for number, piece in enumerate(stream.pieces()):
        if cut is not None and number and number % together == 0:
            cut()
        if numbers is not None:
            places = np.arange(piece.read) if piece.kept is None else piece.kept
            numbers.tell(piece.first + places)
        yield from forward(artifact, piece.batch, layout, piece.first, rows)


def partitions_together(partitions: int) -> int:
    """How many partitions of a dataset make a piece: what is evaluated as one, and is one task of a
    cluster.

    It depends on the dataset alone, so that the numbers and the bytes are the same however many
    workers there are."""
    return min(MOST_TOGETHER, max(1, partitions // LEAST_PIECES))


def split_batches(
    artifact: Artifact,
    reader: CacheReader,
    split: Split,
    batch_size: int | Literal["auto"] | None = None,
    stretches: Sequence[tuple[int, int]] | None = None,
) -> Iterator[tuple[Batch, Outputs]]:
    """Rows of a split of an open cache through the model, in order.

    batch_size: as `trainer.eval_batch_size` has it. stretches: of rows, [start, stop) of each;
    None: every row."""
    from distcore_torch.packing import row_bytes

    layout = layout_of(artifact.features, ("input", "output"))
    names = [*layout.slots, *layout.ragged]
    if stretches is None:
        stretches = [(0, reader.rows(split))]
    rows = rows_of(None if batch_size == "auto" else batch_size)
    # Whole passes, so that none begins elsewhere for it.
    several = max(1, READ_BYTES // (row_bytes(reader, split, layout) * rows)) * rows
    pieces = [
        piece
        for stretch in stretches
        for whole in _cut(*stretch, READ_ROWS)
        for piece in _cut(*whole, several)
    ]
    with ThreadPoolExecutor(1, thread_name_prefix="distcore-read") as thread:

        def read(piece: tuple[int, int]) -> Future[pa.RecordBatch]:
            return thread.submit(reader.read, split, *piece, names)

        ahead = read(pieces[0]) if pieces else None
        for number, (start, _) in enumerate(pieces, 1):
            assert ahead is not None
            encoded = ahead.result()
            ahead = read(pieces[number]) if number < len(pieces) else None
            yield from forward(artifact, encoded, layout, start, rows)


def _cut(start: int, stop: int, size: int) -> list[tuple[int, int]]:
    """Rows [start, stop) as pieces of that many, the last of what is left."""
    return [(each, min(each + size, stop)) for each in range(start, stop, size)]
