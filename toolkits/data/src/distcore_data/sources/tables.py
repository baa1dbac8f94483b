"""What the typed formats (parquet, feather, JSON lines, frames) share: checking their columns
and typing their rows."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.types as pt

from distcore_core.errors import DataError
from distcore_data.printable import listed
from distcore_data.sources.options import DelimitedOptions
from distcore_data.sources.values import is_readable, typed

MOST_NAMED = 5
"""Columns that are not there and are named; the others are counted."""


class ColumnsMissing(LookupError):
    """Why a DataError was raised: these names are no columns."""


def require_columns(shown: str, names: Sequence[str], wanted: Iterable[str]) -> None:
    """Raise DataError when a column is asked for that is not there, with the nearest names (and
    `ColumnsMissing` for its cause), or is there twice."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(
            f"{shown}: column {twice[0]!r} occurs more than once. Give every column a name of its "
            "own."
        )
    there = set(names)
    missing = [name for name in wanted if name not in there]
    if not missing:
        return
    hints = []
    for name in missing[:MOST_NAMED]:
        near = difflib.get_close_matches(name, names, n=1) or [
            each for each in names if each.strip() == name.strip()
        ]
        hints.append(f"{name!r} (did you mean {near[0]!r}?)" if near else repr(name))
    hints += missing[MOST_NAMED:]
    absent = "is no column" if len(missing) == 1 else "are no columns"
    raise DataError(
        f"{shown}: there {absent} {listed(hints, MOST_NAMED)}; it has "
        f"{listed([*map(repr, names)], 20) or 'none'}. Correct the name in the "
        "data, or where it was given (a feature's `name` or `column`, the split's, or `--keep`)."
    ) from ColumnsMissing(*missing)


def require_readable(shown: str, types: Mapping[str, pa.DataType], raw: Mapping[str, str]) -> None:
    """Raise DataError for a column whose type cannot be read as it is declared."""
    for name, kind in raw.items():
        if not is_readable(types[name], kind):
            raise DataError(
                f"{shown}: column {name!r} has type {types[name]!s:.80}, which cannot be read as a "
                f"{kind}. Turn it into numbers or strings (or leave the column out of the config)."
            )


def typed_batch(
    batch: pa.RecordBatch | pa.Table,
    raw: Iterable[tuple[str, str]],
    options: DelimitedOptions,
    place: Callable[[int], str],
    units: Mapping[str, str],
) -> pa.RecordBatch:
    """The columns in `raw`, each typed as it says; units: of timestamps, see `times.unit_of`."""
    columns, names = [], []
    for name, kind in raw:
        columns.append(typed(batch.column(name), kind, name, options, place, units.get(name)))
        names.append(name)
    return pa.record_batch(columns, names=names)


def timestamp_columns(types: Mapping[str, pa.DataType], raw: Mapping[str, str]) -> list[str]:
    """Declared columns of timestamps that are read as text, which depends on the whole column."""
    found = []
    for name, kind in raw.items():
        type_ = types[name].value_type if pt.is_dictionary(types[name]) else types[name]
        if pt.is_timestamp(type_) and kind != "time":
            found.append(name)
    return found


def slices(rows: int, row_bytes: float, target_bytes: int) -> list[tuple[int, int]]:
    """(start, stop) of pieces of about target_bytes, at least a row each, that cover the rows
    evenly."""
    pieces = min(rows, max(1, round(rows * row_bytes / max(1, target_bytes))))
    return [(rows * piece // pieces, rows * (piece + 1) // pieces) for piece in range(pieces)]
