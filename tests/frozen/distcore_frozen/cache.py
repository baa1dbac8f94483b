"""Encoded columns as one Arrow IPC file a shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import pyarrow as pa


class IpcFormat:
    """A `CacheFormat`."""

    suffix = ".frozen"

    def write(self, target: BinaryIO, table: pa.Table) -> None:
        """One record batch, whatever chunks the table came in: equal tables give equal bytes."""
        with pa.ipc.new_file(target, table.schema) as file:
            for batch in table.combine_chunks().to_batches():
                file.write_batch(batch)

    def open(self, source: BinaryIO) -> IpcShard:
        return IpcShard(source)


class IpcShard:
    """A `ShardReader`."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._table = pa.ipc.open_file(source).read_all().combine_chunks()
        self.rows: int = self._table.num_rows

    def read(self, start: int = 0, stop: int | None = None, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        stop = self.rows if stop is None else stop
        if not 0 <= start <= stop <= self.rows:
            raise IndexError(f"rows [{start}, {stop}) of a shard of {self.rows}")
        table = self._table if columns is None else self._table.select(list(columns))
        part = table.slice(start, stop - start)
        arrays = [column.combine_chunks() for column in part.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=part.schema)

    def close(self) -> None:
        self._source.close()
