"""A file that is one JSON document, which is read whole."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from distcore_core.errors import DataError
from distcore_data.seals import mapping_of
from distcore_data.sources.encoding import UTF8_MARK, refuse_other_than_json
from distcore_data.sources.jsonlines import MANY_DIGITS, refuse_deep
from distcore_data.sources.tables import require_columns


def is_document(path: Path) -> bool:
    """Whether the file is one JSON document (an array, or an object over several lines) and not
    JSON lines."""
    with open(path, "rb") as file:
        if file.read(len(UTF8_MARK)) != UTF8_MARK:
            file.seek(0)
        first = next((line.lstrip() for line in file if line.strip()), b"")
        rest = file.read(1 << 20)
    if not first.startswith(b"{"):
        return True
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return first.endswith(b"\n")
    return (
        not rest.strip()
        and bool(value)
        and all(isinstance(each, dict | list) for each in value.values())
    )


def document_columns(
    path: Path, shown: str, wanted: Collection[str] | None = None
) -> dict[str, Any]:
    """The values of a JSON document by column: of a list of records, or of columns as lists or as
    {row: value}. wanted: the columns; None: all."""
    refuse_other_than_json(path, shown, lines=False)

    def twice(name: str) -> DataError:
        return DataError(
            f"{shown}: {name!r} occurs more than once in an object. Give every column a name of "
            "its own."
        )

    try:
        text = path.read_bytes()
        if (written := json.detect_encoding(text)) != "utf-8":  # as which the checks look at it
            text = text.decode(written, "surrogatepass").encode("utf-8", "surrogatepass")
        refuse_deep(text, shown)
        value: Any = json.loads(
            text,
            object_pairs_hook=lambda pairs: mapping_of(pairs, twice),
            parse_float=(lambda x: _finite(x, shown)) if MANY_DIGITS.search(text) else None,
        )
    except ValueError as error:
        raise DataError(
            f"{shown}: not a JSON document: {error}. For an object a line, give jsonl."
        ) from error
    if isinstance(value, dict) and value:
        require_columns(shown, list(value), wanted or ())
        columns = {name: value[name] for name in (value if wanted is None else wanted)}
        return _columns(columns, shown)
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        names = list(dict.fromkeys(name for record in value for name in record))
        require_columns(shown, names, wanted or ())
        return {name: [record.get(name) for record in value] for name in wanted or names}
    raise DataError(
        f"{shown}: neither a list of records nor an object of columns. Give it as JSON lines or "
        "csv."
    )


def _finite(number: str, shown: str) -> float:
    """Raises DataError for a number that would be infinite as a float, as any other such one."""
    if math.isinf(float(number)):
        raise DataError(
            f"{shown}: {number:.60} is beyond the largest float (1.8e308). Correct the value, or "
            "write it as a string."
        )
    return float(number)


def _columns(value: Mapping[str, Any], shown: str) -> dict[str, Any]:
    """Columns of lists; of those that are {row: value} the values are in the order that the first
    of them has its rows in. Raises DataError for one that has other rows."""
    rows: dict[str, Any] = next((each for each in value.values() if isinstance(each, dict)), {})
    found = {}
    for name, each in value.items():
        if isinstance(each, dict):
            if each.keys() != rows.keys():
                strange = next(iter(each.keys() ^ rows.keys()))
                raise DataError(
                    f"{shown}, column {name!r}: not every column has a row {strange!r}. Give all "
                    "of them the same rows; null is a missing value."
                )
            each = [each[row] for row in rows]
        found[name] = each
    return found
