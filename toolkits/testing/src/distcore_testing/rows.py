"""Encoded rows as a loader reads them, without a cache, and what each value of each of them is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from distcore_core.contracts import Column, Split

FIRST = {"train": 0, "validation": 100_000, "test": 200_000}
"""The number of each split's first row: rows of another split are noticed."""


class Rows:
    """`contracts.CachedRows` of as many rows as told, each named by its number in column `row`.

    Columns of every kind lie beside it: floats with odd bit patterns (x), codes up to int32's
    limits (code), a vector of three (vector), and ragged columns with empty rows (tags, words).
    """

    def __init__(self, train: int, validation: int = 0, test: int = 0) -> None:
        self.columns = {
            each.name: each
            for each in (
                Column(name="x", dtype="float32"),
                Column(name="tags", dtype="int32", width=None),
                Column(name="row", dtype="int32"),
                Column(name="vector", dtype="float32", width=3),
                Column(name="code", dtype="int32"),
                Column(name="words", dtype="int32", width=None),
            )
        }
        counts = {"train": train, "validation": validation, "test": test}
        self._tables = {split: _made(FIRST[split], rows) for split, rows in counts.items()}

    def rows(self, split: Split) -> int:
        return self._tables[split].num_rows

    def read(
        self, split: Split, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        table = self._tables[split]
        if not 0 <= start <= stop <= table.num_rows:
            raise IndexError(f"rows {start} to {stop} of {table.num_rows}")
        return table.slice(start, stop - start).select(list(columns or self.columns))

    def expect(self, split: Split, start: int, stop: int) -> None:
        """Everything is in memory already."""

    def numbers(self, split: Split) -> Any:
        """The row numbers of a split, in order: int64."""
        return np.arange(FIRST[split], FIRST[split] + self.rows(split))

    def checked(self, split: Split, batch: Any) -> Any:
        """The row numbers of a batch, int64, after a look at every value of every column that it
        has."""
        numbers = batch["row"].numpy().astype(np.int64)
        assert batch.rows == len(numbers)
        assert np.isin(numbers, self.numbers(split)).all(), f"rows that {split} does not have"
        expected = self._tables[split].take(pa.array(numbers - FIRST[split]))
        for name in batch:
            column, right = self.columns[name], expected.column(name)
            if column.width is None:
                _check_ragged(batch[name], right, name)
                continue
            found, flat = batch[name].numpy(), right.flatten() if column.width > 1 else right
            assert str(found.dtype) == column.dtype, name
            assert found.shape == ((batch.rows, column.width)[: 1 + (column.width > 1)]), name
            bits = np.ascontiguousarray(found).reshape(-1).view(np.int32)
            assert np.array_equal(bits, flat.to_numpy().view(np.int32)), (
                f"column {name} does not go with its row"
            )
        return numbers


def _check_ragged(found: Any, right: Any, name: str) -> None:
    offsets, values = found.offsets.numpy(), found.values.numpy()
    lengths = np.diff(offsets)
    assert len(offsets) == len(right) + 1, f"offsets of {name}"
    assert str(values.dtype) == "int32", name
    assert np.array_equal(lengths, right.value_lengths().to_numpy()), f"lengths of {name}"
    inside = values[offsets[0] : offsets[-1]]
    assert np.array_equal(inside, right.flatten().to_numpy()), f"{name} does not go with its row"


def _made(first: int, rows: int) -> pa.RecordBatch:
    dice = np.random.default_rng(first)
    x = dice.integers(-(2**31), 2**31, rows).astype(np.int32).view(np.float32)
    x[:4] = np.array([np.nan, -0.0, np.inf, 1e-45], np.float32)[:rows]
    code = dice.integers(-(2**31), 2**31, rows).astype(np.int32)
    code[:2] = np.array([-(2**31), 2**31 - 1])[:rows]
    vector = pa.array(dice.normal(size=rows * 3).astype(np.float32))
    return pa.record_batch(
        {
            "x": x,
            "row": np.arange(first, first + rows, dtype=np.int32),
            "code": code,
            "vector": pa.FixedSizeListArray.from_arrays(vector, 3),
            "tags": _lists(dice, rows, 3),
            "words": _lists(dice, rows, 9),
        }
    )


def _lists(dice: np.random.Generator, rows: int, longest: int) -> pa.Array:
    """int32 lists of 0 to `longest` values."""
    lengths = dice.integers(0, longest + 1, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = dice.integers(-(2**31), 2**31, offsets[-1]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
