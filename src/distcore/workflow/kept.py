"""`predict --keep COLUMN`: columns of the dataset beside its predictions, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from distcore_core.errors import DataError, UserError
from distcore_data.printable import printable
from distcore_data.sources.tiles import TARGET_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore_core.contracts import Source
    from distcore_data.artifact import Artifact
    from distcore_torch.prediction import Request

TYPED = ("parquet", "feather", "frame")
"""Formats whose columns have types; a column of a text file is kept as the text that it is."""


class Kept:
    """The columns to keep of an open dataset; read once, from its first row to its last.

    schema: of what is kept, in the order asked for."""

    def __init__(self, source: Source, schema: pa.Schema) -> None:
        self.source, self.schema = source, schema

    def beside(self, predictions: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The predictions, which are in the order of the rows, each batch with its rows' columns
        before it."""
        import pyarrow as pa

        from distcore_torch.prediction import OTHER_ROWS

        rows = self._rows()
        left: pa.RecordBatch | None = None
        for batch in predictions:
            parts, wanted = [], batch.num_rows
            while wanted:
                if left is None or not left.num_rows:
                    left = next(rows, None)
                if left is None:
                    raise DataError(OTHER_ROWS)
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

        for partition in self.source.partitions(TARGET_BYTES):
            batch = partition.read()
            columns = [
                _of_type(batch.column(batch.schema.get_field_index(field.name)), field)
                for field in self.schema
            ]
            if batch.num_rows:
                yield pa.record_batch(columns, schema=self.schema)


def _of_type(texts: pa.Array, field: pa.Field) -> pa.Array:
    """What the texts were written from, or they themselves, if they are no texts. Raises DataError
    for one that is not read so."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from distcore_data.arrow import scalar

    if texts.type == field.type:
        return texts
    try:
        if pa.types.is_time(field.type):  # which Arrow reads from no text
            moments = pc.binary_join_element_wise(scalar("1970-01-01"), texts, scalar(" "))
            return moments.cast(pa.timestamp("us")).cast(pa.time64("us")).cast(field.type)
        return texts.cast(field.type)
    except pa.ArrowInvalid as error:  # a year that has not four digits, an offset with seconds
        raise DataError(
            f"--keep {printable(field.name)}: a value of this column, of type {field.type}, cannot "
            f"be kept as such ({error}). Keep it as text, in a csv file: --output_file "
            "predictions.csv."
        ) from error


@contextmanager
def kept_columns(
    artifact: Artifact, request: Request, names: Sequence[str], *, as_text: bool
) -> Iterator[Kept]:
    """The named columns of a dataset, with the types that they have there; as_text: only whole
    numbers, since they go into a text file. Raises DataError for a column that the dataset has
    not, UserError for one that is predicted."""
    import pyarrow as pa

    from distcore_data.dataset import Data
    from distcore_data.sources.values import FLOATS
    from distcore_torch.decoding import empty_schema

    taken = set(empty_schema(artifact.features).names)
    for name in names:
        if name in taken:
            raise UserError(
                f"--keep {printable(name)}: the predictions have a column of that name. Rename it "
                "in the dataset."
            )
    data = Data(request.dataset, format=request.data_format)
    types = _types(artifact, request, names)

    def kept_as(type: pa.DataType) -> pa.DataType:
        plain = pa.types.is_integer(type) or (not as_text and _is_read_back(type))
        return type if plain else pa.string()

    schema = pa.schema(
        [(name, kept_as(types.get(name, pa.string()))) for name in dict.fromkeys(names)]
    )
    # A key may be spelled as a missing value is: NA, null, None.
    as_written = replace(artifact.delimited(), null_values=())
    raw = {field.name: FLOATS if pa.types.is_floating(field.type) else "string" for field in schema}
    with data.open(raw, as_written, artifact.plugins) as source:
        yield Kept(source, schema)


def _is_read_back(type: pa.DataType) -> bool:
    """Whether a value's text says all of it, and Arrow reads it; a number that is none is a
    missing one there."""
    import pyarrow.types as pt

    if pt.is_decimal(type):
        return type.bit_width >= 128 and type.scale >= 0
    if pt.is_time(type):
        return bool(type.unit != "ns")
    kinds = (pt.is_floating, pt.is_boolean, pt.is_date, pt.is_timestamp)
    return any(kind(type) for kind in kinds)


def _of_values(type: pa.DataType) -> pa.DataType:
    """The type of a column's values: that of a dictionary's, if it has one."""
    import pyarrow as pa

    return type.value_type if pa.types.is_dictionary(type) else type


def _types(artifact: Artifact, request: Request, names: Sequence[str]) -> dict[str, pa.DataType]:
    """{column: its type} of a dataset that has types, at least for these; text for one whose files
    differ."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from distcore_data.sources.fetch import is_url, local_path
    from distcore_data.sources.memory import SHOWN, as_table, frame_columns
    from distcore_data.sources.parquet_files import parquet_files
    from distcore_data.sources.registry import format_name, sample
    from distcore_data.sources.tables import require_columns

    dataset, format, plugins = request.dataset, request.data_format, artifact.plugins
    found = format_name(dataset, format, plugins)
    if found not in TYPED:
        return {}
    if found == "frame":  # a column that nobody asks for need not fit Arrow
        require_columns(SHOWN, frame_columns(dataset), names)
        looked = as_table(dataset, list(dict.fromkeys(names)))
    else:
        looked = sample(dataset, 1, format=format, plugins=plugins)
    types = {each.name: _of_values(each.type) for each in looked.schema}
    if found == "parquet" and not is_url(str(dataset)):
        for path in parquet_files(local_path(dataset), str(dataset))[1:]:
            for each in pq.read_schema(path):
                now = _of_values(each.type)
                before = types.get(each.name, now)
                if before != now:
                    whole = pa.types.is_integer(before) and pa.types.is_integer(now)
                    types[each.name] = pa.int64() if whole else pa.string()
    return types
