"""Made-up tables, each of one kind of column, by which this machine is measured, and their
configs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcore_core.contracts import JSON

WORDS = 12
"""Of a text."""


def numbers(rows: int, columns: int, digits: int) -> pa.Table:
    """Columns x0, x1, … of numbers with so many digits behind the point, and the target y."""
    dice = np.random.default_rng(columns)
    found = {f"x{i}": dice.standard_normal(rows).round(digits) for i in range(columns)}
    return _with_target(found, rows)


def categories(rows: int, columns: int, values: int) -> pa.Table:
    """The same of texts, each one of so many values."""
    dice = np.random.default_rng(values)
    found = {f"x{i}": dice.integers(0, values, rows).astype(str) for i in range(columns)}
    return _with_target(found, rows)


def days(rows: int, columns: int) -> pa.Table:
    """The same of dates."""
    dice, first = np.random.default_rng(columns), np.datetime64("2020-01-01", "D")
    found = {f"x{i}": first + dice.integers(0, 1000, rows) for i in range(columns)}
    return _with_target(found, rows)


def distinct_values(table: pa.Table) -> int:
    """Values of all its categories."""
    return sum(len(table[name].unique()) for name in table.column_names if name != "y")


def texts(rows: int) -> pa.Table:
    """A column x0 of texts of WORDS words, and the target y."""
    dice = np.random.default_rng(rows)
    words = pa.array([f"w{number}" for number in range(5000)])
    chosen = words.take(pa.array(dice.integers(0, len(words), rows * WORDS)))
    ends = pa.array(np.arange(0, rows * WORDS + 1, WORDS), pa.int32())
    return _with_target({"x0": pc.binary_join(pa.ListArray.from_arrays(ends, chosen), " ")}, rows)


def _with_target(columns: Mapping[str, Any], rows: int) -> pa.Table:
    return pa.table({**columns, "y": np.arange(rows) % 2})


def config_of(kind: str, columns: int, cache: Path, **changes: Any) -> JSON:
    """A config whose inputs x0, x1, … are all of one type, or "ranked": numbers with quantiles."""
    by_kind: dict[str, JSON] = {
        "number": {"preprocessing": {"normalization": "zscore"}},
        "ranked": {"type": "number", "encoder": {"type": "ple"}},
        "category": {"preprocessing": {"most_common": 1_000_000}},
        "text": {"encoder": {"type": "embed"}},
        "date": {},
    }
    options = by_kind[kind]
    return {
        "input_features": [{"name": f"x{i}", "type": kind} | options for i in range(columns)],
        "output_features": [{"name": "y", "type": "binary"}],
        "trainer": {"epochs": 1, "batch_size": 1024},
        "backend": {"type": "local", "cache_dir": str(cache)},
    } | changes
