"""Batch prediction, shape by shape: Parquet → model → Parquet, ours against a hand-written loop of
the same network with the same weights.

    python bench/stage_prediction_shapes.py WHO SHAPES ROWS   (SHAPES: folders, with commas)

One thread computes; ours reads, encodes and writes in threads beside it, as it does for its users
(what that costs is in the processor time). Both read raw rows, encode them, predict, and write the
file; the loop encodes with Arrow by hand, knows that no set has a member twice and no text a blank
too many, and writes a prediction and a probability for each output. Seconds are of the work inside
the process, after the same work on a small file: opening the model is part of them, imports are not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import stage_predict
from learnt_shapes import SHAPES, columns_of, described, home, prepared, sections
from measure import Comparison, emit, run, say
from results import Row, at_least, row
from setting import ONE_THREAD, Bench, all_training, config
from stage_predict import FORWARD, READ, codes_by_hand, numbers_by_hand, ours, timed

TITLE = "batch prediction, shape by shape"
TARGET = at_least(0.95)
SMALL = 1000
START, STOP = 1, 0
"""Places in a text's vocabulary."""


# ------------------------------------------------------------------ by hand


def by_hand(folder: Path, rows: Path, out: Path) -> Path:
    import torch

    import handmade_shapes

    known = described(folder)
    net = handmade_shapes.network(known)
    net.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
    kinds = [(each["name"], each["type"]) for each in known["output_features"]]
    metadata = known["metadata"]

    def written(outputs: list[Any]) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        for (name, kind), logits in zip(kinds, outputs, strict=True):
            found |= COLUMNS[kind](name, logits, metadata[name])
        return found

    path = out / "predictions.parquet"
    return stage_predict.by_hand(net, encoded(known, rows), written, path)


def of_binary(name: str, logits: Any, metadata: Any) -> dict[str, np.ndarray]:
    found = stage_predict.probabilities(logits.squeeze(1))
    return {f"{name}_{what}": values for what, values in found.items()}


def of_number(name: str, logits: Any, metadata: Any) -> dict[str, np.ndarray]:
    values = logits.squeeze(1).numpy().astype(np.float64)
    return {f"{name}_prediction": values * metadata["std"] + metadata["mean"]}


def of_category(name: str, logits: Any, metadata: Any) -> dict[str, np.ndarray]:
    probability, code = logits.softmax(1).max(1)
    words = np.array(metadata["idx2str"])
    return {f"{name}_prediction": words[code.numpy()], f"{name}_probability": probability.numpy()}


COLUMNS: dict[str, Callable[[str, Any, Any], dict[str, np.ndarray]]] = {
    "binary": of_binary,
    "number": of_number,
    "category": of_category,
}


def encoded(known: dict[str, Any], path: Path) -> Iterator[tuple[Any, ...]]:
    """Raw rows as the network takes them, FORWARD rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    import handmade_shapes

    names, metadata = columns_of(known), known["metadata"]
    words = {name: pa.array(metadata[name]["idx2str"]) for name in (*names["categories"], *names["ragged"])}  # fmt: skip
    is_text = known["input_features"][0]["type"] == "text"
    columns = [*names["numbers"], *names["categories"], *names["ragged"]]
    for batch in pq.ParquetFile(path).iter_batches(READ, columns=columns):
        numbers = torch.from_numpy(numbers_by_hand(batch, names["numbers"], metadata))
        codes = torch.from_numpy(codes_by_hand(batch, names["categories"], words))
        lists = [lists_by_hand(batch.column(name), words[name], is_text) for name in names["ragged"]]  # fmt: skip
        for start in range(0, batch.num_rows, FORWARD):
            rows = slice(start, min(start + FORWARD, batch.num_rows))
            ragged: Any = [cut(*each, rows) for each in lists]
            if handmade_shapes.padded(known):
                ragged = handmade_shapes.rectangle(*ragged[0])
            yield numbers[rows], codes[rows], ragged


def lists_by_hand(texts: Any, words: Any, is_text: bool) -> tuple[Any, Any]:
    """Texts as codes and offsets; one that is a text begins and ends with a word of its own."""
    import pyarrow.compute as pc
    import torch

    split = pc.split_pattern(texts, " ")
    tokens = split.flatten().dictionary_encode()
    unknown = words.to_pylist().index("<UNK>")
    known = pc.fill_null(pc.index_in(tokens.dictionary, words), unknown).to_numpy()
    codes = known[tokens.indices.to_numpy()].astype(np.int64)
    offsets = split.offsets.to_numpy().astype(np.int64)
    if is_text:
        codes = np.insert(codes, offsets[:-1], START)
        offsets = offsets + np.arange(len(offsets))
        codes = np.insert(codes, offsets[1:], STOP)
        offsets = offsets + np.arange(len(offsets))
    return torch.from_numpy(codes), torch.from_numpy(offsets)


def cut(values: Any, offsets: Any, rows: slice) -> tuple[Any, Any]:
    first, last = int(offsets[rows.start]), int(offsets[rows.stop])
    return values[first:last], offsets[rows.start : rows.stop + 1] - first


def main() -> None:
    who, count = sys.argv[1], int(sys.argv[3])
    for folder in map(Path, sys.argv[2].split(",")):
        small, rows = folder / f"raw_{SMALL}.parquet", folder / f"raw_{count}.parquet"
        predict, name = (
            (ours, "target_probabilities_True")
            if who == "distcore"
            else (by_hand, "target_probability")
        )
        found = timed(predict, folder, small, rows, folder / who, name)
        key = folder.name.rpartition("_")[0]
        emit(**{f"{key}_{what}": value for what, value in found.items()})


# ------------------------------------------------------------------ what is compared


def measure(bench: Bench) -> list[Row]:
    names = [name for name in SHAPES if name != "plain"]
    count = bench.pick(50_000, SMALL)
    prepared(bench, names)
    folders = [home(bench, name) for name in names]
    missing = [each for each in folders if not (each / f"raw_{count}.parquet").exists()]
    if missing:
        say("  training the models")
        run(bench.script("stage_prediction_shapes.py", "--prepare", count, *missing))
    groups = [[name] for name in names] if not bench.quick else [names]
    return [line for group in groups for line in compared(bench, group, count)]


def compared(bench: Bench, names: list[str], count: int) -> list[Row]:
    folders = ",".join(str(home(bench, name)) for name in names)
    commands = {
        who: bench.script("stage_prediction_shapes.py", who, folders, count)
        for who in ("distcore", "hand")
    }
    found = bench.compare(commands, (5, 1), f"{names[0]}_rows_per_second", ONE_THREAD)
    return [line(found, name) for name in names]


def line(found: Comparison, name: str) -> Row:
    checks = [found.median(who, f"{name}_check") for who in ("distcore", "hand")]
    columns = [found.median(who, f"{name}_columns") for who in ("distcore", "hand")]
    assert abs(checks[0] - checks[1]) < 1e-4, (name, checks)
    return row(
        *(found, SHAPES[name].title, "distcore", "hand", f"{name}_rows_per_second", "rows/s", TARGET),
        peer_is="raw loop that encodes by hand",
        note=f"{columns[0]:.0f} columns are written, the loop's {columns[1]:.0f}",
    )  # fmt: skip


# ------------------------------------------------------------------ models


def prepare(folder: Path, count: int) -> None:
    """A model, its weights under the hand-written network's names, and the rows to predict."""
    import pyarrow.parquet as pq
    import torch
    from safetensors.torch import load_file

    import distcore
    import handmade_shapes

    known = described(folder)
    settings = config(
        **sections(folder),
        preprocessing=all_training(),
        trainer={"train_steps": 20, "batch_size": 128},
        backend={"type": "local", "cache_dir": str(folder / "cache")},
    )
    outcome = distcore.train(
        settings, dataset=known["data"], output_directory=str(folder / "runs"), model_name="model"
    )
    (folder / "model").unlink(missing_ok=True)
    (folder / "model").symlink_to(outcome.model.resolve())
    weights = load_file(outcome.model / "weights.safetensors")
    torch.save(handmade_shapes.weights_of(weights, known), folder / "weights.pt")
    inputs = [each["name"] for each in known["input_features"]]
    table = pq.read_table(known["data"], columns=inputs)
    for rows in dict.fromkeys((SMALL, count)):
        repeated = np.arange(rows) % len(table)
        pq.write_table(table.take(repeated), folder / f"raw_{rows}.parquet")


if __name__ == "__main__":
    if sys.argv[1] == "--prepare":
        for each in map(Path, sys.argv[3:]):
            prepare(each, int(sys.argv[2]))
        emit(done=True)
    else:
        main()
