"""The rows that loaders are compared on: as words, as Arrow tables, in a bucket and in Lance's files.

Rows lie in Lance and in Ray as one list of fixed size a row, so that no loader pays for a thousand
columns by name.
"""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import stage_store
from learnt_shapes import columns_of, described
from stage_formats import CARDINALITIES

BUCKET_TABLE = "s3://bucket/lance/rows.lance"


# ------------------------------------------------------------------ of a shape


def cuts(known: dict[str, Any]) -> list[int]:
    """Where numbers, codes and targets end in a row of 32-bit words."""
    names = columns_of(known)
    counts = [len(names[each]) for each in ("numbers", "categories", "outputs")]
    return [int(each) for each in np.cumsum(counts)]


def of_words(words: Any, ends: list[int], lists: list[Any]) -> tuple[Any, ...]:
    """A batch, as views of its rows of words, an int32 tensor [B, words]."""
    import torch

    numbers, codes, _ = ends
    floats = words.view(torch.float32)
    return floats[:, :numbers], words[:, numbers:codes], lists, floats[:, codes:]


def as_table(matrix: np.ndarray, lists: dict[str, tuple[np.ndarray, np.ndarray]]) -> pa.Table:
    """Rows as Arrow: `row`, a list of fixed size of the words of a row, and each ragged column.

    lists: {name: (values, offsets)}."""
    words = pa.array(np.ascontiguousarray(matrix).reshape(-1))
    columns: dict[str, Any] = {"row": pa.FixedSizeListArray.from_arrays(words, matrix.shape[1])}
    for name, (values, offsets) in lists.items():
        columns[name] = pa.ListArray.from_arrays(
            pa.array(offsets.astype(np.int32)), pa.array(values)
        )
    return pa.table(columns)


def of_table(table: pa.Table, ends: list[int]) -> tuple[Any, ...]:
    """A batch of what `as_table` made; tensors are views of it."""
    import torch

    words = _whole(table.column("row")).flatten().to_numpy(zero_copy_only=False)
    lists = []
    for name in table.column_names:
        if name != "row":
            column = _whole(table.column(name))
            offsets = column.offsets.to_numpy()
            lists.append(
                (_tensor(column.flatten().to_numpy()), torch.from_numpy(offsets - offsets[0]))
            )
    return of_words(_tensor(words).view(-1, ends[-1]), ends, lists)


def _whole(column: Any) -> Any:
    """A column without chunks."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _tensor(values: np.ndarray) -> Any:
    import torch

    with warnings.catch_warnings():  # Arrow's memory is read-only; nobody writes to it here
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(values)


def raw(folder: Path) -> tuple[np.ndarray, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """A prepared shape's rows of words, and its ragged columns."""
    known = described(folder)
    matrix = np.fromfile(folder / "packed.i32", np.int32).reshape(-1, cuts(known)[-1])
    lists = {}
    for name in columns_of(known)["ragged"]:
        with np.load(folder / f"{name}.npz") as found:
            lists[name] = (found["values"].astype(np.int32), found["offsets"])
    return matrix, lists


# ------------------------------------------------------------------ in the bucket


def bucket_names() -> tuple[list[str], list[str], list[str]]:
    """Numbers, categories and targets of what `stage_store.build` puts there."""
    categories = [f"cat_{place}" for place in range(len(CARDINALITIES))]
    return [f"num_{place}" for place in range(10)], categories[:-1], categories[-1:]


def bucket_cuts() -> list[int]:
    return [int(each) for each in np.cumsum([len(each) for each in bucket_names()])]


def bucket_files(endpoint: str) -> Any:
    from pyarrow.fs import S3FileSystem

    return S3FileSystem(
        access_key="bench",
        secret_key="bench",
        region="us-east-1",
        scheme="http",
        endpoint_override=endpoint.removeprefix("http://"),
    )


def bucket_shards() -> list[str]:
    return [f"{stage_store.BUCKET}/{name}" for name in os.environ["BUCKET_SHARDS"].split(",")]


def lance_options(endpoint: str) -> dict[str, str]:
    return {
        "aws_access_key_id": "bench",
        "aws_secret_access_key": "bench",
        "aws_region": "us-east-1",
        "aws_endpoint": endpoint,
        "allow_http": "true",
    }


def matrix_of(table: pa.Table) -> np.ndarray:
    """Columns as rows of words."""
    names = [name for each in bucket_names() for name in each]
    found = np.empty((len(table), len(names)), np.int32)
    for place, name in enumerate(names):
        found[:, place] = table.column(name).to_numpy().view(np.int32)
    return found


# ------------------------------------------------------------------ for Lance


def write_lance(folder: str) -> None:
    """Lance's file of a shape."""
    import lance

    target = Path(folder, "rows.lance")
    part = target.with_name("rows.lance.part")
    shutil.rmtree(part, ignore_errors=True)
    lance.write_dataset(as_table(*raw(Path(folder))), str(part))
    os.rename(part, target)


def write_lance_bucket(endpoint: str) -> None:
    """The rows of the bucket's cache, for Lance."""
    import lance

    table = pq.read_table(bucket_shards(), filesystem=bucket_files(endpoint))
    rows = as_table(matrix_of(table), {})
    lance.write_dataset(rows, BUCKET_TABLE, storage_options=lance_options(endpoint))


PREPARE = {"--lance": write_lance, "--lance-bucket": write_lance_bucket}
