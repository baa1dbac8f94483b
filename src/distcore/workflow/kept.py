"""`predict --keep COLUMN`: columns of the dataset beside its predictions, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distcore_core.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore_core.contracts import Source
    from distcore_data.artifact import Artifact
    from distcore_torch.prediction import Request

TYPED = ("parquet", "feather", "frame")
"""Formats whose whole numbers are whole numbers; a column of a text file is kept as the text
that it is."""


class Kept:
    """The columns to keep of an open dataset; read once, from its first row to its last.

    schema: of what is kept, in the order asked for."""

    def __init__(self, source: Source, schema: pa.Schema) -> None:
        self._source, self.schema = source, schema

    def beside(self, predictions: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The predictions, which are in the order of the rows, each batch with its rows' columns
        before it."""
        import pyarrow as pa

        rows = self._rows()
        left: pa.RecordBatch | None = None
        for batch in predictions:
            parts, wanted = [], batch.num_rows
            while wanted:
                left = left if left is not None and left.num_rows else next(rows)
                parts.append(left.slice(0, wanted))
                left = left.slice(len(parts[-1]))
                wanted -= len(parts[-1])
            kept = pa.Table.from_batches(parts, self.schema).combine_chunks()
            columns = [*(column.combine_chunks() for column in kept.columns), *batch.columns]
            yield pa.record_batch(columns, schema=self.before(batch.schema))

    def before(self, predictions: pa.Schema) -> pa.Schema:
        """The schema of both together."""
        import pyarrow as pa

        return pa.schema([*self.schema, *predictions])

    def _rows(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for partition in self._source.partitions(16 << 20):
            batch = partition.read()
            columns = [
                batch.column(batch.schema.get_field_index(field.name)).cast(field.type)
                for field in self.schema
            ]
            if batch.num_rows:
                yield pa.record_batch(columns, schema=self.schema)


@contextmanager
def kept_columns(artifact: Artifact, request: Request, names: Sequence[str]) -> Iterator[Kept]:
    """The named columns of a dataset. Raises DataError for one that it has not, UserError for
    one that is predicted."""
    import pyarrow as pa
    import pyarrow.types as pt

    from distcore_data.dataset import Data
    from distcore_data.sources.registry import format_name, sample
    from distcore_torch.decoding import empty_schema

    taken = set(empty_schema(artifact.features).names)
    for name in names:
        if name in taken:
            raise UserError(
                f"--keep {name}: the predictions have a column of that name. Rename it in the "
                "dataset."
            )
    data = Data(request.dataset, format=request.data_format)
    whole: set[str] = set()
    if format_name(request.dataset, request.data_format, artifact.plugins) in TYPED:
        seen: Any = sample(
            request.dataset, 1, format=request.data_format, plugins=artifact.plugins
        ).schema
        whole = {field.name for field in seen if pt.is_integer(field.type)}
    schema = pa.schema(
        [(name, pa.int64() if name in whole else pa.string()) for name in dict.fromkeys(names)]
    )
    # A key may be spelled as a missing value is: NA, null, None.
    as_written = replace(artifact.delimited(), null_values=())
    with data.open(dict.fromkeys(names, "string"), as_written, artifact.plugins) as source:
        yield Kept(source, schema)
