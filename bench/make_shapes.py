"""Tables of other shapes than that of make_data.py, each with a config of ours.

    wide       numbers alone, a thousand columns
    times      timestamps to the second
    distinct   categories, every value of which occurs about twice
    text       texts of 12 words out of 20,000
    ragged     texts of 1 to 40 words, no word twice in one
    files      a folder of small Parquet files
    quoted     csv as RFC 4180 has it: every text in quotes, some with newlines, commas and quotes

What a shape holds depends on its sizes alone. Files are written under another name and renamed, so
one that is there is whole.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import yaml

import make_data

NUMBER = {"missing_value_strategy": "fill_with_mean", "normalization": "zscore"}
WORDS = 20_000
WORDS_A_TEXT = 12


def config(columns: Mapping[str, str], cache: Path) -> dict[str, Any]:
    """columns: {input: its type}; the target is binary. cache: the folder of caches."""
    options: dict[str, dict[str, Any]] = {
        "number": {"preprocessing": NUMBER},
        "category": {"preprocessing": {"most_common": 20_000_000}},
        "text": {"encoder": {"type": "embed"}},
        "date": {},
    }
    return {
        "input_features": [
            {"name": name, "type": kind, **options[kind]} for name, kind in columns.items()
        ],
        "output_features": [{"name": "target", "type": "binary"}],
        "backend": {"type": "local", "cache_dir": str(cache)},
    }


def write_config(path: Path, columns: Mapping[str, str], cache: Path) -> Path:
    path.write_text(yaml.safe_dump(config(columns, cache), sort_keys=False))
    return path


def narrow_columns() -> dict[str, str]:
    return {
        **dict.fromkeys(make_data.NUMBERS, "number"),
        **dict.fromkeys(make_data.CATEGORIES, "category"),
    }


def wide(path: Path, rows: int, columns: int, kind: type = np.float64) -> Path:
    def made() -> pa.Table:
        dice = np.random.default_rng(columns)
        drawn = [dice.standard_normal(rows).round(4).astype(kind) for _ in range(columns)]
        table = {f"x{i}": each for i, each in enumerate(drawn)}
        return pa.table({**table, "target": dice.integers(0, 2, rows)})

    return _written(path, made)


def times(path: Path, rows: int, columns: int) -> Path:
    """Of twenty years, hardly one of them twice."""

    def made() -> pa.Table:
        dice, first = np.random.default_rng(rows), np.datetime64("2005-01-01", "us")
        seconds = [dice.integers(0, 20 * 365 * 86_400, rows) for _ in range(columns)]
        table = {f"t{i}": first + 1_000_000 * each for i, each in enumerate(seconds)}
        return pa.table({**table, "target": dice.integers(0, 2, rows)})

    return _written(path, made)


def distinct(path: Path, rows: int, values: int, columns: int) -> Path:
    dice = np.random.default_rng(values)
    found = {f"s{i}": dice.integers(0, values, rows).astype(str) for i in range(columns)}
    return _written(path, lambda: pa.table({**found, "target": dice.integers(0, 2, rows)}))


def every_row_another(path: Path, rows: int) -> Path:
    """One category; no two rows have the same value."""

    def made() -> pa.Table:
        dice = np.random.default_rng(rows)
        values = dice.permutation(rows).astype(str)
        return pa.table({"s0": values, "target": dice.integers(0, 2, rows)})

    return _written(path, made)


def text(path: Path, rows: int) -> Path:
    def made() -> pa.Table:
        dice = np.random.default_rng(rows)
        words = np.array([f"w{number}" for number in range(WORDS)])
        chosen = words[dice.integers(0, WORDS, (-(-rows // 10), WORDS_A_TEXT))]
        texts = [" ".join(each) for each in chosen.tolist()]
        column = pa.array((texts * 10)[:rows])
        return pa.table({"text": column, "target": dice.integers(0, 2, rows)})

    return _written(path, made)


def ragged(path: Path, rows: int, columns: int, words: int, most: int) -> Path:
    """Columns t0, t1, … of texts of 1 to `most` out of `words` words; no text has a word twice."""

    def made() -> pa.Table:
        dice = np.random.default_rng(words)
        names = np.array([f"w{number}" for number in range(words)])
        found = {f"t{place}": _texts(dice, rows, names, most) for place in range(columns)}
        return pa.table({**found, "target": dice.integers(0, 2, rows)})

    return _written(path, made)


def _texts(dice: np.random.Generator, rows: int, names: np.ndarray, most: int) -> pa.Array:
    lengths = dice.integers(1, most + 1, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    first = np.repeat(dice.integers(0, len(names), rows), lengths)
    chosen = pa.array(names[(first + place * (len(names) // most)) % len(names)])
    lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), chosen)
    return pc.binary_join(lists, " ")


def files(folder: Path, count: int, rows: int) -> Path:
    """A folder of so many Parquet files of so many rows of make_data's table."""
    if not folder.exists():
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        a_chunk = make_data.CHUNK // rows
        for start in range(0, count, a_chunk):
            (table,) = make_data.chunks(make_data.CHUNK, first=start // a_chunk)
            for number in range(start, min(start + a_chunk, count)):
                slice_ = table.slice((number - start) * rows, rows)
                pq.write_table(slice_, part / f"{number:06d}.parquet")
        os.replace(part, folder)
    return folder


def repeated(folder: Path, source: Path, times: int) -> Path:
    """A folder in which the same file stands so often, on the disk once."""
    if not folder.exists():
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for number in range(times):
            (part / f"{number:06d}{source.suffix}").hardlink_to(source)
        os.replace(part, folder)
    return folder


def quoted(path: Path, rows: int) -> Path:
    """make_data's table with every text in quotes; a category has newlines, one commas, one
    quotes."""

    def made() -> pa.Table:
        table = pa.concat_tables(list(make_data.chunks(rows)))
        for name, inside in zip(("cat_1", "cat_2", "cat_3"), ("\n", ", ", '"'), strict=True):
            place = table.column_names.index(name)
            texts = table.column(name).cast(pa.string()).dictionary_encode().combine_chunks()
            labels = [each.replace("_", inside) for each in texts.dictionary.to_pylist()]
            changed = pa.array(labels).take(texts.indices)
            table = table.set_column(place, name, changed)
        return table

    return _written(path, made)


def packed(path: Path, source: Path) -> Path:
    """A file compressed as the path's last suffix says, .gz or .zst."""

    def fill(part: Path) -> None:
        if path.suffix == ".gz":
            with open(source, "rb") as plain, gzip.open(part, "wb", 6) as target:
                shutil.copyfileobj(plain, target, 1 << 20)
        else:
            with (
                open(source, "rb") as plain,
                pa.CompressedOutputStream(str(part), "zstd") as target,
            ):
                while piece := plain.read(1 << 20):
                    target.write(piece)

    return _whole(path, fill)


def json_lines(path: Path, rows: int) -> Path:
    def fill(part: Path) -> None:
        with open(part, "w") as file:
            for table in make_data.chunks(rows):
                file.writelines(json.dumps(each) + "\n" for each in table.to_pylist())

    return _whole(path, fill)


def _written(path: Path, table: Callable[[], pa.Table]) -> Path:
    def fill(part: Path) -> None:
        if path.suffix == ".csv":
            pacsv.write_csv(table(), part)
        else:
            pq.write_table(table(), part)

    return _whole(path, fill)


def _whole(path: Path, fill: Callable[[Path], None]) -> Path:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        fill(part)
        os.replace(part, path)
    return path
