"""Predictions in a file: Parquet or CSV, whole or not at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from distcore_core.errors import TrainingError
from distcore_core.io.atomic import write_file
from distcore_data.arrow import scalar
from distcore_data.os_errors import explained

GROUP_ROWS = 131_072
"""Rows of a row group of the predictions: one for each forward pass would take half again as
long to write."""

GROUP_BYTES = 128 << 20
"""Of a row group, which lies in memory while the next one comes: rows of 20,000 classes would be
10 GB."""

ANOTHER_PLACE = "choose another folder (--output_directory, or --output_file if you gave that)"
"""What can be done if there is no room for predictions."""


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches put together to tables of GROUP_ROWS rows or GROUP_BYTES or a little more; the
    last has what is left."""
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        kept.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(kept)
            kept, rows, size = [], 0, 0
    if kept:
        yield pa.Table.from_batches(kept)


class _CsvWriter:
    """Lines of text; what is a list in a column is JSON there. A column by itself is of texts,
    where a row without a value is two quotes: readers skip an empty line."""

    def __init__(self, file: Any, schema: pa.Schema) -> None:
        from pyarrow import csv

        self._lists = [at for at, each in enumerate(schema) if pt.is_nested(each.type)]
        for at in self._lists:
            schema = schema.set(at, pa.field(schema[at].name, pa.string()))
        self._alone = len(schema) == 1
        if self._alone:
            schema = pa.schema([(schema[0].name, pa.string())])
        self._writer = csv.CSVWriter(file, schema)

    def write_table(self, table: pa.Table) -> None:
        for at in self._lists:
            texts = [
                None if each is None else json.dumps(each) for each in table.column(at).to_pylist()
            ]
            table = table.set_column(at, table.schema[at].name, pa.array(texts, pa.string()))
        if self._alone:
            texts = pc.coalesce(table.column(0).cast(pa.string()), scalar(""))
            table = pa.table({table.schema[0].name: texts})
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


def _writer(file: Any, schema: pa.Schema, suffix: str) -> Any:
    """A writer of CSV, or of Parquet: looking for equal probabilities, of which there are few,
    would take most of its time."""
    if suffix == ".csv":
        return _CsvWriter(file, schema)
    import pyarrow.parquet as pq

    return pq.ParquetWriter(
        file, schema, use_dictionary=[each.name for each in schema if not pt.is_floating(each.type)]
    )


def write_predictions(
    path: Path, batches: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch], empty: pa.Schema
) -> int:
    """Write predictions as Parquet, or as CSV if the path ends so, whole or not at all; returns the
    rows.

    empty: the schema if there are none."""
    rows = 0

    def fill(file: Any) -> None:
        nonlocal rows
        writer: Any = None
        under_way: Future[None] | None = None
        turn, over = threading.Lock(), False

        def write(table: pa.Table) -> None:
            with turn:
                if not over:
                    writer.write_table(table)

        try:
            # A thread encodes a row group while the next one is predicted.
            with ThreadPoolExecutor(1, thread_name_prefix="distcore-write") as thread:
                for table in _grouped(batches):
                    writer = writer or _writer(file, table.schema, path.suffix)
                    if under_way is not None:
                        under_way.result()
                    under_way = thread.submit(write, table)
                    rows += table.num_rows
            if under_way is not None:
                under_way.result()
            writer = writer or _writer(file, empty, path.suffix)
        finally:
            # Ctrl-C may have ended the wait for the thread, and Python takes that for ended then.
            # Closed while it is written to, Arrow's writer ends the process.
            with turn:
                over = True
                if writer is not None:
                    writer.close()

    with explained(
        path.parent,
        "the predictions",
        TrainingError,
        advice=ANOTHER_PLACE,
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, fill)
    return rows
