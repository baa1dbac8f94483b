"""Encoded columns as one Avro object container file a shard, a record a row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa

SYNC = b"distcore's cache"
"""Avro puts 16 bytes between blocks, by chance if nobody chooses them; equal tables must give
equal bytes."""

BLOCK_BYTES = 1 << 18
AVRO: dict[pa.DataType, str] = {pa.float32(): "float", pa.int32(): "int", pa.int8(): "int"}
ARROW = {str(kind): kind for kind in AVRO}


class AvroFormat:
    """`CacheFormat` on fastavro."""

    suffix = ".avro"

    def write(self, target: BinaryIO, table: pa.Table) -> None:
        """Columns are called c0, c1, …: Avro allows few letters in a name. The file's metadata
        says which is which."""
        fields, columns = [], []
        for number, field in enumerate(table.schema):
            nested = pa.types.is_nested(field.type)
            value = field.type.value_type if nested else field.type
            kind = {"type": "array", "items": AVRO[value]} if nested else AVRO[value]
            fields.append({"name": f"c{number}", "type": kind})
            size = getattr(field.type, "list_size", -1) if nested else 0
            columns.append({"name": field.name, "value": str(value), "size": size})
        schema = fastavro.parse_schema({"type": "record", "name": "Row", "fields": fields})
        names = [field["name"] for field in fields]
        batches = table.rename_columns(names).to_batches(max_chunksize=4096)
        rows = (row for batch in batches for row in batch.to_pylist())
        metadata = {"distcore": json.dumps({"rows": table.num_rows, "columns": columns})}
        fastavro.writer(
            target, schema, rows, sync_marker=SYNC, metadata=metadata, sync_interval=BLOCK_BYTES
        )

    def open(self, source: BinaryIO) -> AvroShard:
        return AvroShard(source)


class AvroShard:
    """An open shard. Reads go through all blocks before the first row: fine for a few thousand
    rows, slow for many."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        told: dict[str, Any] = json.loads(fastavro.reader(source).metadata["distcore"])
        self.rows: int = told["rows"]
        self._types = {column["name"]: _type(column) for column in told["columns"]}

    def read(
        self, start: int = 0, stop: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Rows [start, stop) of the columns, in the order they are asked for."""
        stop = self.rows if stop is None else stop
        if not 0 <= start <= stop <= self.rows:
            raise IndexError(f"rows [{start}, {stop}) of a shard of {self.rows}")
        rows: list[Any] = []
        self._source.seek(0)
        seen = 0
        for block in fastavro.block_reader(self._source):
            if seen < stop and seen + block.num_records > start:
                rows += list(block)[max(start - seen, 0) : stop - seen]
            seen += block.num_records
        if seen != self.rows:
            raise ValueError(f"{self.rows} rows were expected, {seen} found")
        names = list(self._types)
        found = {
            name: pa.array([row[f"c{names.index(name)}"] for row in rows], self._types[name])
            for name in names
        }
        return pa.RecordBatch.from_pydict(
            {name: found[name] for name in (names if columns is None else columns)}
        )

    def close(self) -> None:
        self._source.close()


def _type(column: dict[str, Any]) -> pa.DataType:
    value, size = ARROW[column["value"]], column["size"]
    return value if size == 0 else pa.list_(value, size)  # -1: of any length
