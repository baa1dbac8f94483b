"""What is learnt shape by shape: tables of other shapes, a config for each, and their rows encoded,
as training and prediction are measured on them.

    python bench/learnt_shapes.py FOLDER …

builds what a folder's `shape.json` describes: the cache, its fixed-width columns as one matrix of
32-bit words, and its ragged ones as values and offsets.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import handmade
import make_data
import make_shapes
from measure import emit, run, say
from setting import Bench, all_training, config

TARGET = {"name": "target", "type": "binary"}
WORDS, MOST = 5_000, 40
"""Of the ragged tables: different words, and most of them in a text."""

INITIAL = {"type": "uniform", "a": -0.05, "b": 0.05}
"""Of the words' vectors: that of categories, so that losses can be compared."""

CATEGORIES, VALUES = 100, 100
SETS = 4


@dataclass(frozen=True)
class Shape:
    """title: what it is, in a line of the results. inputs, outputs: sections of the config. rows:
    full and quick. data: makes the table of so many rows in a folder."""

    name: str
    title: str
    inputs: Callable[[bool], list[dict[str, Any]]]
    data: Callable[[Path, int, bool], Path]
    outputs: tuple[dict[str, Any], ...] = (TARGET,)
    rows: tuple[int, int] = (50_000, 2000)


def _numbers(names: Any) -> list[dict[str, Any]]:
    return [{"name": name, "type": "number", "preprocessing": make_shapes.NUMBER} for name in names]


def _categories(names: Any) -> list[dict[str, Any]]:
    encoder = {"type": "dense", "embedding_size": handmade.EMBEDDING}
    return [{"name": name, "type": "category", "encoder": encoder} for name in names]


def _texts(kind: str, count: int, **encoder: Any) -> Callable[[bool], list[dict[str, Any]]]:
    encoder |= {"weights_initializer": INITIAL}
    section = {"type": kind, "preprocessing": {"tokenizer": "space"}, "encoder": encoder}
    return lambda quick: [{"name": f"t{place}", **section} for place in range(count)]


def _ragged(columns: int) -> Callable[[Path, int, bool], Path]:
    return lambda folder, rows, quick: make_shapes.ragged(
        folder / f"ragged_{rows}_{columns}.parquet", rows, columns, WORDS, MOST
    )


def _plain(folder: Path, rows: int, quick: bool) -> Path:
    return make_data.write(folder.parent / f"tab_{rows}.parquet", rows)


def _wide(quick: bool) -> int:
    return 100 if quick else 1000


SHAPES = {
    each.name: each
    for each in (
        Shape(
            "plain",
            "10 numbers, 6 categories",
            lambda quick: _numbers(make_data.NUMBERS) + _categories(make_data.CATEGORIES),
            _plain,
            rows=(2_000_000, 20_000),
        ),
        Shape(
            "wide",
            "1,000 numbers",
            lambda quick: _numbers(f"x{place}" for place in range(_wide(quick))),
            lambda folder, rows, quick: make_shapes.wide(
                folder / f"wide_{rows}_{_wide(quick)}.parquet", rows, _wide(quick)
            ),
        ),
        Shape(
            "categories",
            f"{CATEGORIES} categories of {VALUES} values",
            lambda quick: _categories(f"s{place}" for place in range(CATEGORIES)),
            lambda folder, rows, quick: make_shapes.distinct(
                folder / f"categories_{rows}.parquet", rows, VALUES, CATEGORIES
            ),
        ),
        Shape(
            "sets",
            f"{SETS} sets of 1 to {MOST} members",
            _texts("set", SETS, type="embed", embedding_size=handmade.EMBEDDING),
            _ragged(SETS),
        ),
        Shape(
            "text",
            f"text of 1 to {MOST} words, embed",
            _texts("text", 1, type="embed", embedding_size=64),
            _ragged(1),
        ),
        Shape(
            "cnn",
            f"text of 1 to {MOST} words, parallel_cnn",
            _texts("text", 1, type="parallel_cnn", embedding_size=64, num_filters=64),
            _ragged(1),
            rows=(20_000, 2000),
        ),
        Shape(
            "outputs",
            "four outputs",
            lambda quick: _numbers(make_data.NUMBERS[:-2]) + _categories(make_data.CATEGORIES[1:]),
            _plain,
            outputs=(
                TARGET,
                *(
                    {"name": name, "type": "number", "preprocessing": {"normalization": "zscore"}}
                    for name in make_data.NUMBERS[-2:]
                ),
                {"name": make_data.CATEGORIES[0], "type": "category"},
            ),
            rows=(200_000, 20_000),
        ),
    )
}


# ------------------------------------------------------------------ on disk


def home(bench: Bench, name: str) -> Path:
    """The folder of a shape."""
    return bench.data / "learnt" / f"{name}_{bench.pick(*SHAPES[name].rows)}"


def sections(folder: Path) -> dict[str, Any]:
    """What of the shape's config is its own."""
    known = described(folder)
    return {key: known[key] for key in ("input_features", "output_features")}


def described(folder: Path) -> dict[str, Any]:
    """`shape.json`: input_features, output_features, data, and once it is prepared cache
    (`directory:key`) and metadata."""
    found: dict[str, Any] = json.loads((folder / "shape.json").read_text())
    return found


def prepared(bench: Bench, names: Any) -> None:
    """Make tables, caches and encoded rows of these shapes, if they are not there."""
    missing = []
    for name in dict.fromkeys(names):
        shape, folder = SHAPES[name], home(bench, name)
        if (folder / "packed.i32").exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        data = shape.data(bench.data / "shapes", bench.pick(*shape.rows), bench.quick)
        known = {
            "input_features": shape.inputs(bench.quick),
            "output_features": list(shape.outputs),
            "data": str(data),
        }
        (folder / "shape.json").write_text(json.dumps(known))
        missing.append(folder)
    if missing:
        say(f"  building the caches of {', '.join(each.name for each in missing)}")
        run(bench.script("learnt_shapes.py", *missing))


def columns_of(known: dict[str, Any]) -> dict[str, list[str]]:
    """{"numbers", "categories", "ragged", "outputs": names}, of a described shape."""
    kinds: dict[str, list[str]] = {"numbers": [], "categories": [], "ragged": []}
    for each in known["input_features"]:
        kinds[{"number": "numbers", "category": "categories"}.get(each["type"], "ragged")].append(
            each["name"]
        )
    return {**kinds, "outputs": [each["name"] for each in known["output_features"]]}


def prepare(folder: Path) -> None:
    import distcore

    known = described(folder)
    settings = config(
        **sections(folder),
        preprocessing=all_training(),
        backend={"type": "local", "cache_dir": str(folder / "cache")},
    )
    cache = distcore.preprocess(settings, dataset=known["data"])
    name, names = f"{cache.directory}:{cache.key}", columns_of(known)
    with handmade.open_cache(name) as reader:
        known |= {"cache": name, "metadata": reader.metadata}
        rows = reader.rows("train")
        for ragged in names["ragged"]:
            column = reader.read("train", 0, rows, [ragged]).column(ragged)
            values, offsets = column.values.to_numpy(), column.offsets.to_numpy()
            np.savez(folder / f"{ragged}.npz", values=values, offsets=offsets)
    (folder / "shape.json").write_text(json.dumps(known))
    fixed = [*names["numbers"], *names["categories"], *names["outputs"]]
    handmade.pack(name, folder / "packed.i32", fixed)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        prepare(Path(each))
    emit(done=True)
