"""Preprocessing by SQL: scripts of DuckDB and of chDB, of the same work as peer_polars.py.

    python bench/peer_sql.py duckdb|chdb KIND DATASET

Writes `encoded.parquet` where it runs.

Both read the dataset once into a table in memory, ask it for means, deviations and the values of
each column by their number, and write one Parquet file with snappy. DuckDB codes a text by its cast
to an enumeration of the column's values; rows keep their order. chDB codes it by a dictionary in
memory; its threads write blocks of rows as they are done with them, so rows are in no order.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PARTS = {
    "duckdb": ("year({0})", "month({0})", "day({0})", "isodow({0}) - 1", "dayofyear({0})", "hour({0})", "minute({0})", "second({0})", "3600 * hour({0}) + 60 * minute({0}) + second({0})"),
    "chdb": ("toYear({0})", "toMonth({0})", "toDayOfMonth({0})", "toDayOfWeek({0}) - 1", "toDayOfYear({0})", "toHour({0})", "toMinute({0})", "toSecond({0})", "3600 * toHour({0}) + 60 * toMinute({0}) + toSecond({0})"),
}  # fmt: skip
"""The nine that a date is for us."""

UNKNOWN, FIRST = 1, 2
"""Codes of a text's words: of one that is not in the vocabulary, and of the most frequent."""

MOST_COMMON = 10_000
"""How many words of a text are in the vocabulary."""


def duckdb_(kind: str, dataset: Path) -> None:
    import duckdb

    base = duckdb.connect()
    base.execute(f"CREATE TABLE raw AS FROM '{files(dataset)}'")
    types = {name: str(each) for name, each, *_ in base.execute("DESCRIBE raw").fetchall()}
    columns = numbers(
        [name for name, each in types.items() if each in ("DOUBLE", "FLOAT")],
        lambda asked: base.execute(f"SELECT {asked} FROM raw").fetchone(),
        "avg({0}), stddev_pop({0})",
        "coalesce(({0} - {1!r}) / {2!r}, 0)::FLOAT",
    )
    columns += dates(
        [name for name, each in types.items() if each == "TIMESTAMP"], "({0})::INT", "duckdb"
    )
    for name in (name for name, each in types.items() if each == "VARCHAR"):
        # All words, not the most frequent: casts that fail made it take over ten times as long.
        values = f"unnest(string_split({name}, ' '))" if kind == "text" else name
        base.execute(
            f"CREATE TYPE codes_{name} AS ENUM (SELECT value FROM (SELECT {values} AS value"
            " FROM raw) WHERE value IS NOT NULL GROUP BY value ORDER BY count(*) DESC)"
        )
        code = "enum_code({0})::INT"
        if kind == "text":
            known = f"CASE WHEN enum_code(word) < {MOST_COMMON} THEN {code} + {FIRST} ELSE {UNKNOWN} END"  # fmt: skip
            words = f"string_split({name}, ' ')::codes_{name}[]"
            columns.append(
                f"list_transform({words}, lambda word: {known.format('word')}) AS {name}"
            )
        else:
            columns.append(f"{code.format(f'{name}::codes_{name}')} AS {name}")
    encoded = f"SELECT {', '.join(columns)}, target::INT AS target FROM raw"
    base.execute(f"COPY ({encoded}) TO 'encoded.parquet' (COMPRESSION snappy)")


def chdb_(kind: str, dataset: Path) -> None:
    from chdb.session import Session

    base = Session()

    def rows(query: str) -> list[list[Any]]:
        found: list[list[Any]] = json.loads(base.query(query, "JSONCompact").data())["data"]
        return found

    base.query(f"CREATE TABLE raw ENGINE = Memory AS SELECT * FROM file('{files(dataset)}')")
    types = {name: each for name, each, *_ in rows("DESCRIBE TABLE raw")}
    columns = numbers(
        [name for name, each in types.items() if "Float" in each],
        lambda asked: rows(f"SELECT {asked} FROM raw")[0],
        "avg({0}), stddevPop({0})",
        "toFloat32(ifNull(({0} - {1!r}) / {2!r}, 0))",
    )
    columns += dates(
        [name for name, each in types.items() if "DateTime" in each], "toInt32({0})", "chdb"
    )
    for name in (name for name, each in types.items() if "String" in each):
        text = f"assumeNotNull({name})"
        values = f"arrayJoin(splitByChar(' ', {text}))" if kind == "text" else text
        bound = f"LIMIT {MOST_COMMON}" if kind == "text" else ""
        base.query(
            f"CREATE TABLE counts_{name} ENGINE = Memory AS SELECT value,"
            f" toInt32(rowNumberInAllBlocks()) AS code FROM (SELECT {values} AS value FROM raw"
            f" GROUP BY value ORDER BY count() DESC {bound})"
        )
        base.query(
            f"CREATE DICTIONARY codes_{name} (value String, code Int32) PRIMARY KEY value"
            f" SOURCE(CLICKHOUSE(TABLE 'counts_{name}')) LAYOUT(COMPLEX_KEY_HASHED()) LIFETIME(0)"
        )
        if kind == "text":
            word = (
                f"dictGetOrDefault('codes_{name}', 'code', tuple(word), toInt32({UNKNOWN - FIRST}))"
            )
            words = f"splitByChar(' ', {text})"
            columns.append(f"arrayMap(word -> toInt32({word} + {FIRST}), {words}) AS {name}")
        else:
            columns.append(f"dictGet('codes_{name}', 'code', tuple({text})) AS {name}")
    base.query(
        f"SELECT {', '.join(columns)}, toInt32(target) AS target FROM raw"
        f" INTO OUTFILE 'encoded.parquet' FORMAT Parquet"
        " SETTINGS output_format_parquet_compression_method = 'snappy'"
    )


def files(dataset: Path) -> str:
    """What the table functions of both call the dataset."""
    return f"{dataset}/*.parquet" if dataset.is_dir() else str(dataset)


def numbers(names: list[str], asked: Any, statistics: str, scaled: str) -> list[str]:
    """Columns of numbers, z-scored, missing ones as the mean. asked: expressions → their values in
    one row. statistics: mean and deviation of a column; scaled: it with both."""
    if not names:
        return []
    found = asked(", ".join(statistics.format(name) for name in names))
    return [
        f"{scaled.format(name, mean, deviation)} AS {name}"
        for name, mean, deviation in zip(names, found[::2], found[1::2], strict=True)
    ]


def dates(names: list[str], whole: str, who: str) -> list[str]:
    """Columns of their parts. whole: an expression as a number of 32 bits."""
    return [
        f"{whole.format(part.format(name))} AS {name}_{number}"
        for name in names
        for number, part in enumerate(PARTS[who])
    ]


def main() -> None:
    who, kind, dataset = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    {"duckdb": duckdb_, "chdb": chdb_}[who](kind, dataset)


if __name__ == "__main__":
    main()
