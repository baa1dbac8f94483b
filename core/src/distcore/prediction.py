"""Predictions and scores: batches through a predictor, decoded for people, in the order of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from distcore.batch import Batch, Layout
from distcore.durable import explained, write_file
from distcore.errors import TrainingError, UserError
from distcore.report.diagnostics import Diagnostics

if TYPE_CHECKING:
    from distcore.artifact import Artifact
    from distcore.cache.reader import CacheReader
    from distcore.contracts import Split
    from distcore.encoding.stream import EncodedStream
    from distcore.features import Features
    from distcore.progress import Progress

ROWS = 4096
"""Rows of a forward pass unless the user says otherwise: enough to keep every core busy, few enough for the caches."""

READ_ROWS = 65_536
"""Rows read from a cache at once."""

GROUP_ROWS = 131_072
"""Rows of a row group of the predictions: one for each forward pass would take half again as long to write."""

Outputs = Mapping[str, np.ndarray]


def predict_stream(
    artifact: Artifact,
    dataset: Any,
    *,
    batch_size: int | None = None,
    data_format: str | None = None,
    progress: Progress | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decoded predictions of every row of a dataset, in its order, some rows at a time. Raises as `open_source` does.

    A row that cannot be predicted (it misses a value of an input whose strategy is drop_row) is a row of nulls."""
    features = artifact.features
    layout = layout_of(features, ("input",))
    with encoded_stream(artifact, dataset, ("input",), data_format) as stream:
        for piece in stream.pieces():
            batches = forward(artifact, piece.batch, layout, piece.first, rows_of(batch_size))
            parts = [decoded(features, outputs) for _, outputs in batches]
            if piece.kept is None:
                yield from parts
            else:
                yield spread(parts, piece.kept, piece.read, empty_schema(features))
            if progress is not None:
                progress.done += piece.read


def spread(parts: Sequence[pa.RecordBatch], kept: np.ndarray, rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """Predictions of some of `rows` rows as a batch of all of them, nulls elsewhere. kept: their places."""
    table = pa.Table.from_batches(parts, schema)
    places = np.full(rows, -1)
    places[kept] = np.arange(len(kept))
    taken = table.take(pa.array(places, mask=places < 0))
    return taken.combine_chunks().to_batches()[0] if rows else pa.RecordBatch.from_pylist([], schema)


@contextmanager
def encoded_stream(
    artifact: Artifact, dataset: Any, roles: Sequence[str], data_format: str | None
) -> Iterator[EncodedStream]:
    """The dataset, read and encoded as for training."""
    from distcore.dataset import Data
    from distcore.encoding.stream import encode_stream

    with Data(dataset, format=data_format).open(artifact.features.raw(roles), artifact.delimited()) as source:
        yield encode_stream(source, artifact.features, roles)


def forward(
    artifact: Artifact, encoded: pa.RecordBatch, layout: Layout, start: int, rows: int
) -> Iterator[tuple[Batch, Outputs]]:
    """Encoded rows through the predictor, `rows` at a time."""
    from distcore.packing import pack

    for offset in range(0, encoded.num_rows, rows):
        batch = pack(encoded.slice(offset, rows), layout, start + offset)
        yield batch, artifact.predictor.predict(batch)


def rows_of(batch_size: int | None) -> int:
    """Rows of a forward pass. Raises UserError where the user asks for none."""
    if batch_size is not None and batch_size < 1:
        raise UserError(f"batch_size is {batch_size}, but a batch has at least one row. Give --batch_size 1 or more.")
    return batch_size or ROWS


def layout_of(features: Features, roles: Sequence[str]) -> Layout:
    """How the columns of the given roles lie in a batch."""
    chosen = [*(features.inputs if "input" in roles else ()), *(features.outputs if "output" in roles else ())]
    return Layout.of(features.columns[feature.name] for feature in chosen)


def decoded(features: Features, outputs: Outputs) -> pa.RecordBatch:
    """What people read: the columns of every output feature, side by side."""
    columns: dict[str, pa.Array] = {}
    for feature in features.outputs:
        found = feature.network().predictions(outputs[feature.name], features.metadata[feature.name])
        columns |= dict(zip(found.schema.names, found.columns, strict=True))
    return pa.record_batch(columns)


class Evaluation:
    """Scores and the report's diagnostics of batches, in one pass over them. rows: how many were scored."""

    def __init__(self, features: Features, split: str = "") -> None:
        from distcore.training.scores import Scores

        self.features = features
        self.scores = Scores(features, split=split)
        self.diagnostics = Diagnostics(features)
        self.rows = 0

    def decode(self, batches: Iterator[tuple[Batch, Outputs]], progress: Progress) -> Iterator[pa.RecordBatch]:
        """Score every batch, and give its decoded predictions."""
        for batch, outputs in self.score(batches, progress):
            if batch.rows:
                yield decoded(self.features, outputs)

    def score(self, batches: Iterator[tuple[Batch, Outputs]], progress: Progress) -> Iterator[tuple[Batch, Outputs]]:
        """Score every batch as it passes."""
        for batch, outputs in batches:
            self.scores.update(outputs, batch)
            self.diagnostics.update(outputs, batch)
            self.rows += batch.rows
            progress.done += batch.rows
            yield batch, outputs

    def run(self, batches: Iterator[tuple[Batch, Outputs]], progress: Progress, path: Path | None) -> Path | None:
        """Score every batch; write the predictions to `path` unless it is None. Memory does not grow with the rows."""
        if path is not None:
            write_predictions(path, self.decode(batches, progress), empty_schema(self.features))
            return path
        for _ in self.score(batches, progress):
            continue
        return None


def empty_schema(features: Features) -> pa.Schema:
    """The columns of predictions, from a prediction of no rows."""
    outputs = {}
    for feature in features.outputs:
        classes = features.metadata[feature.name].get("idx2str")
        outputs[feature.name] = np.zeros((0,) if classes is None else (0, len(classes)), np.float32)
    return decoded(features, outputs).schema


def dataset_batches(
    artifact: Artifact, dataset: Any, batch_size: int | None = None, data_format: str | None = None
) -> Iterator[tuple[Batch, Outputs]]:
    """Every row of a dataset, which holds the targets too, through the model; rows that lack a target are left out."""
    roles = ("input", "output")
    layout = layout_of(artifact.features, roles)
    with encoded_stream(artifact, dataset, roles, data_format) as stream:
        for start, encoded in stream:
            yield from forward(artifact, encoded, layout, start, rows_of(batch_size))


def split_batches(
    artifact: Artifact, reader: CacheReader, split: Split, batch_size: int | None = None
) -> Iterator[tuple[Batch, Outputs]]:
    """Every row of a split of an open cache through the model, in order."""
    layout = layout_of(artifact.features, ("input", "output"))
    names = [*layout.slots, *layout.ragged]
    for start in range(0, reader.rows(split), READ_ROWS):
        encoded = reader.read(split, start, min(start + READ_ROWS, reader.rows(split)), names)
        yield from forward(artifact, encoded, layout, start, rows_of(batch_size))


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches put together to tables of GROUP_ROWS rows or a little more; the last has what is left."""
    kept: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        kept.append(batch)
        rows += batch.num_rows
        if rows >= GROUP_ROWS:
            yield pa.Table.from_batches(kept)
            kept, rows = [], 0
    if kept:
        yield pa.Table.from_batches(kept)


def _writer(file: Any, schema: pa.Schema) -> Any:
    """A Parquet writer. Looking for equal probabilities, of which there are few, would take most of its time."""
    import pyarrow.parquet as pq

    return pq.ParquetWriter(
        file, schema, use_dictionary=[each.name for each in schema if not pt.is_floating(each.type)]
    )


def write_predictions(
    path: Path, batches: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch], empty: pa.Schema
) -> int:
    """Write predictions as Parquet, whole or not at all; returns the rows. empty: the schema where there are none."""
    rows = 0

    def fill(file: Any) -> None:
        nonlocal rows
        writer: Any = None
        try:
            for table in _grouped(batches):
                writer = writer or _writer(file, table.schema)
                writer.write_table(table)
                rows += table.num_rows
            writer = writer or _writer(file, empty)
        finally:
            if writer is not None:
                writer.close()

    with explained(
        path.parent, "the predictions", TrainingError, advice="choose another folder with --output_directory"
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, fill)
    return rows
