"""Batch prediction: Parquet → model → Parquet, in the order of the rows. Ours against raw loops
with the same weights.

    python bench/stage_predict.py VARIANT FOLDER SMALL.parquet ROWS.parquet

Ours is `distcore_torch.prediction` on raw rows: it reads, encodes, predicts, decodes and commits
the file. `raw_encoded` starts from rows that are encoded already and writes two columns; `raw`
encodes by hand with Arrow first, as ours has to. Seconds are of the work inside the process, after
the same work on a small file.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import handmade
from make_data import CATEGORIES, COLUMNS, NUMBERS
from measure import emit, run, say
from results import Row, at_least, row
from setting import ONE_THREAD, Bench, all_training, config

TITLE = "batch prediction"
READ, FORWARD = 65_536, 4096

Batches = Iterator[tuple[Any, ...]]
"""What a network takes, some thousand rows at a time."""


def ours(folder: Path, rows: Path, out: Path) -> Path:
    import distcore

    found = distcore.predict(
        str(folder / "model"), str(rows), output_directory=str(out), overwrite=True
    )
    assert found is not None
    return found


def ours_encoded(folder: Path, rows: Path, out: Path) -> Path:
    """The cache's only split through the model, without scores."""
    from distcore_data.artifact import open_artifact
    from distcore_torch.decoding import decoded, empty_schema
    from distcore_torch.prediction import split_batches
    from distcore_torch.prediction_files import write_predictions

    artifact = open_artifact(folder / "model")
    features, path = artifact.features, out / "predictions.parquet"
    with handmade.open_cache((folder / f"{rows.stem}_cache.txt").read_text()) as reader:
        batches = (
            decoded(features, outputs) for _, outputs in split_batches(artifact, reader, "train")
        )
        write_predictions(path, batches, empty_schema(features))
    return path


def raw_encoded(folder: Path, rows: Path, out: Path) -> Path:
    batches = pieces(encoded(folder / f"{rows.stem}_encoded.parquet"))
    return by_hand(network(folder), batches, probabilities, out / "predictions.parquet")


def raw(folder: Path, rows: Path, out: Path) -> Path:
    batches = pieces(encoding(folder, rows))
    return by_hand(network(folder), batches, probabilities, out / "predictions.parquet")


def network(folder: Path) -> Any:
    import torch

    net = handmade.network()
    net.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
    return net


def pieces(read: Iterator[tuple[np.ndarray, ...]]) -> Batches:
    """What was read, FORWARD rows at a time."""
    import torch

    for arrays in read:
        whole = [torch.from_numpy(each) for each in arrays]
        for start in range(0, len(whole[0]), FORWARD):
            yield tuple(each[start : start + FORWARD] for each in whole)


def probabilities(logits: Any) -> dict[str, np.ndarray]:
    """Columns to write of the logits of a binary, [B]."""
    probability = logits.sigmoid().numpy()
    return {"prediction": probability >= 0.5, "probability": probability}


def encoded(path: Path) -> Iterator[tuple[np.ndarray, ...]]:
    """Encoded rows as they are read."""
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(path).iter_batches(READ, columns=[*NUMBERS, *CATEGORIES]):
        yield (
            np.stack([batch.column(name).to_numpy() for name in NUMBERS], 1),
            np.stack([batch.column(name).to_numpy() for name in CATEGORIES], 1),
        )


def encoding(folder: Path, path: Path) -> Iterator[tuple[np.ndarray, ...]]:
    """Raw rows, z-scored, imputed and looked up by hand."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = json.loads((folder / "metadata.json").read_text())
    words = {name: pa.array(metadata[name]["idx2str"]) for name in CATEGORIES}
    for batch in pq.ParquetFile(path).iter_batches(READ, columns=[*NUMBERS, *CATEGORIES]):
        yield (
            numbers_by_hand(batch, NUMBERS, metadata),
            codes_by_hand(batch, CATEGORIES, words),
        )


def numbers_by_hand(batch: Any, names: Sequence[str], metadata: Any) -> np.ndarray:
    """Float32 [rows, names]: z-scored, what is missing is the mean."""
    import pyarrow.compute as pc

    numbers = np.empty((batch.num_rows, len(names)), np.float32)
    for place, name in enumerate(names):
        mean, std = metadata[name]["mean"], metadata[name]["std"]
        numbers[:, place] = (pc.fill_null(batch.column(name), mean).to_numpy() - mean) / std
    return numbers


def codes_by_hand(batch: Any, names: Sequence[str], words: Mapping[str, Any]) -> np.ndarray:
    """Int32 [rows, names]: places in the words of each, 0 if it has no such word."""
    import pyarrow.compute as pc

    codes = np.empty((batch.num_rows, len(names)), np.int32)
    for place, name in enumerate(names):
        column = batch.column(name).dictionary_encode()
        known = pc.fill_null(pc.index_in(column.dictionary, words[name]), 0).to_numpy()
        codes[:, place] = known[column.indices.to_numpy()]
    return codes


def by_hand(
    net: Any, batches: Batches, columns_of: Callable[[Any], dict[str, np.ndarray]], path: Path
) -> Path:
    """The loop: forward some thousand rows at a time, write what READ rows gave at once."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    net.eval()
    writer, kept, rows = None, [], 0
    with torch.inference_mode():
        for batch in batches:
            kept.append(pa.record_batch(columns_of(net(*batch))))
            rows += kept[-1].num_rows
            if rows >= READ:
                writer = writer or pq.ParquetWriter(path, kept[0].schema)
                writer.write_table(pa.Table.from_batches(kept))
                kept, rows = [], 0
    writer = writer or pq.ParquetWriter(path, kept[0].schema)
    if kept:
        writer.write_table(pa.Table.from_batches(kept))
    writer.close()
    return path


VARIANTS = {
    "distcore_encoded": ours_encoded,
    "raw_encoded": raw_encoded,
    "distcore": ours,
    "raw": raw,
}


def main() -> None:
    variant, folder, small, rows = sys.argv[1], *map(Path, sys.argv[2:5])
    name = "target_probabilities_True" if variant.startswith("distcore") else "probability"
    emit(**timed(VARIANTS[variant], folder, small, rows, folder / variant, name))


def timed(
    predict: Callable[[Path, Path, Path], Path],
    folder: Path,
    small: Path,
    rows: Path,
    out: Path,
    probability: str,
) -> dict[str, Any]:
    """What predictions are compared by. probability: a column of theirs."""
    import pyarrow.parquet as pq

    out.mkdir(exist_ok=True)
    predict(folder, small, out)
    started = time.perf_counter()
    found = predict(folder, rows, out)
    seconds = time.perf_counter() - started
    table = pq.read_table(found)
    values = table[probability].to_numpy().astype(np.float64)
    # Depends on every probability and on the order of the rows.
    check = float(values @ np.linspace(0, 1, len(values)) / len(values))
    return {
        "seconds": seconds,
        "rows_per_second": len(table) / seconds,
        "check": check,
        "columns": table.num_columns,
    }


def measure(bench: Bench) -> list[Row]:
    rows = bench.pick(2_000_000, 200_000)
    folder = bench.data / "predict"
    source, small = bench.parquet(rows), bench.parquet(1000)
    if not (folder / "ready").exists():
        say("  training the model")
        folder.mkdir(exist_ok=True)
        run(bench.script("stage_predict.py", "--prepare", folder, bench.parquet(200_000)))
        (folder / "ready").touch()
    for path in (small, source):
        if not (folder / f"{path.stem}_encoded.parquet").exists():
            run(bench.script("stage_predict.py", "--encode", folder, path))
    lines = []
    for threads, environment in (("default threads", {}), ("one thread", ONE_THREAD)):
        commands = {
            name: bench.script("stage_predict.py", name, folder, small, source) for name in VARIANTS
        }
        found = bench.compare(commands, (3, 1), "rows_per_second", environment)
        for pair in (("distcore_encoded", "raw_encoded"), ("distcore", "raw")):
            ours_, theirs = (found.median(name, "check") for name in pair)
            assert abs(ours_ - theirs) < 1e-4, (pair, ours_, theirs)
        rate, unit, target = "rows_per_second", "rows/s", at_least(0.9)
        lines += [
            row(found, f"from encoded rows, {threads}", "distcore_encoded", "raw_encoded", rate, unit, target,
                peer_is="raw loop over encoded Parquet"),
            row(found, f"from raw rows, {threads}", "distcore", "raw", rate, unit, target,
                peer_is="raw loop that encodes by hand"),
            row(found, f"raw rows against encoded ones, {threads}", "distcore", "raw_encoded", rate, unit,
                peer_is="raw loop over encoded Parquet"),
        ]  # fmt: skip
    return lines


def prepare() -> None:
    """A model, its weights under the hand-written network's names, and the metadata that
    encodes."""
    import torch
    from safetensors.torch import load_file

    import distcore

    folder, rows = Path(sys.argv[2]), sys.argv[3]
    settings = config(
        preprocessing=all_training(),
        trainer={"epochs": 1},
        backend={"type": "local", "cache_dir": str(folder / "cache")},
    )
    outcome = distcore.train(
        settings, dataset=rows, output_directory=str(folder), model_name="model"
    )
    (folder / "model").symlink_to(outcome.model.resolve())
    weights = load_file(outcome.model / "weights.safetensors")
    named = {
        f"embeddings.{i}.weight": weights[f"encoders.feature_{name}.weight"]
        for i, name in enumerate(CATEGORIES)
    }
    places = {
        "layers.0": "combiner.layers.0",
        "layers.2": "combiner.layers.1",
        "layers.4": "decoders.feature_target",
    }
    for mine, theirs in places.items():
        named |= {
            f"{mine}.{kind}": weights[f"{theirs}.linear.{kind}"] for kind in ("weight", "bias")
        }
    width = len(NUMBERS)
    first = named["layers.0.weight"]  # ours has the numbers first, the hand-written one last
    named["layers.0.weight"] = torch.cat([first[:, width:], first[:, :width]], 1)
    torch.save(named, folder / "weights.pt")
    manifest = json.loads((outcome.model / "model.json").read_text())
    (folder / "metadata.json").write_text(json.dumps(manifest["metadata"]))
    emit(done=True)


def encode() -> None:
    """The rows' own cache, and what is in it as one Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import distcore

    folder, rows = Path(sys.argv[2]), Path(sys.argv[3])
    settings = config(
        preprocessing=all_training(), backend={"type": "local", "cache_dir": str(folder / "cache")}
    )
    cache = distcore.preprocess(settings, dataset=str(rows))
    name = f"{cache.directory}:{cache.key}"
    (folder / f"{rows.stem}_cache.txt").write_text(name)
    with handmade.open_cache(name) as reader:
        table = pa.Table.from_batches([reader.read("train", 0, reader.rows("train"), COLUMNS)])
    pq.write_table(
        table, folder / f"{rows.stem}_encoded.parquet", use_dictionary=False, row_group_size=131_072
    )
    emit(done=True)


if __name__ == "__main__":
    {"--prepare": prepare, "--encode": encode}.get(sys.argv[1], main)()
