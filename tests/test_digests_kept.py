"""Caches, weights and predictions keep the bits that `digests_kept.json` records: a change of the
code's shape leaves them alone.

Shards have the same bits everywhere. Weights and predictions are promised for one kind of processor
and one version of torch only, so elsewhere they are not compared. A change that is meant to change
bits records them anew, and its commit says why:

    OMP_NUM_THREADS=1 python -m tests.test_digests_kept
"""

import hashlib
import json
import platform
import random
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors import safe_open

import distcore

HERE = Path(__file__).parent
RECORD = HERE / "digests_kept.json"
PENGUINS = HERE.parent / "examples" / "penguins"
ROWS = 600


def missing(dice, value, share=0.1):
    return "" if dice.random() < share else value


def one_of(dice, values):
    """`choice` may give other values in another Python; `random` is promised to give the same."""
    return values[int(dice.random() * len(values))]


def numbers_and_categories(dice):
    age, city = int(dice.random() * 80), one_of(dice, ["Rome", "São Paulo", "Oslo", "東京"])
    return {
        "age": missing(dice, age),
        "price": missing(dice, (dice.random() - 0.5) * 10 ** int(dice.random() * 9 - 3)),
        "member": missing(dice, one_of(dice, ["yes", "no"])),
        "city": missing(dice, city),
        "bought": "yes" if age > 40 or city == "Oslo" else "no",
    }


def text_and_sets(dice):
    words = [
        one_of(dice, ["good", "bad", "fine", "slow", "Grün"])
        for _ in range(1 + int(dice.random() * 9))
    ]
    tags = " ".join(each for each in "abcdef" if dice.random() < 0.4)
    return {
        "review": " ".join(words),
        "tags": tags,
        "stars": "high" if words.count("good") > 1 else "low",
    }


def several_outputs(dice):
    x, y = dice.random(), dice.random()
    return {"x": x, "y": y, "sum": x + y, "product": x * y * 100, "larger": "x" if x > y else "y"}


CONFIGS = {
    "numbers_and_categories": """\
input_features:
  - {name: age, type: number, preprocessing: {missing_value_strategy: fill_with_mean, normalization: zscore}}
  - {name: price, type: number, preprocessing: {missing_value_strategy: bfill, normalization: iq}}
  - {name: member, type: binary}
  - {name: city, type: category, preprocessing: {missing_value_strategy: fill_with_mode}}
output_features: [{name: bought, type: binary}]
combiner: {type: concat}
trainer: {epochs: 2, batch_size: 64}
""",
    "text_and_sets": """\
input_features:
  - {name: review, type: text, encoder: {type: embed, embedding_size: 8}}
  - {name: tags, type: set}
output_features: [{name: stars, type: category}]
preprocessing: {split: {type: stratify, column: stars, probabilities: [0.6, 0.2, 0.2]}}
combiner: {type: concat}
trainer: {epochs: 2, batch_size: 64}
""",
    "several_outputs": """\
input_features: [{name: x, type: number}, {name: y, type: number}]
output_features: [{name: sum, type: number}, {name: product, type: number}, {name: larger, type: category}]
combiner: {type: concat}
trainer: {epochs: 2, batch_size: 64}
""",
}
ROW = {
    "numbers_and_categories": numbers_and_categories,
    "text_and_sets": text_and_sets,
    "several_outputs": several_outputs,
}
NAMES = ["penguins", *CONFIGS]


def given(name, folder):
    """(config, dataset) of a case, written into the folder."""
    if name == "penguins":
        text, data = (
            (PENGUINS / "config.yaml").read_text().replace("backend: local", ""),
            PENGUINS / "penguins.csv",
        )
    else:
        text, data, dice = CONFIGS[name], folder / "data.csv", random.Random(5)
        rows = [ROW[name](dice) for _ in range(ROWS)]
        lines = [",".join(map(str, each)) for each in (rows[0], *(row.values() for row in rows))]
        data.write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = folder / "config.yaml"
    config.write_text(f"{text}backend: {{type: local, cache_dir: {folder / 'cache'}}}\n")
    return config, data


def shards(cache):
    """{file: sha256} of the shards of the one cache in the folder."""
    files = sorted(each for each in cache.rglob("*.parquet"))
    assert files
    return {
        "/".join(each.parts[-2:]): hashlib.sha256(each.read_bytes()).hexdigest() for each in files
    }


def weights(model):
    """sha256 of names and bits: how a file of tensors lays them out may change."""
    digest = hashlib.sha256()
    for file in sorted(model.rglob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in sorted(tensors.keys()):
                tensor = tensors.get_tensor(name).contiguous()
                digest.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
                digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def predictions(path):
    table = pq.read_table(path)
    return hashlib.sha256(repr([table.column_names, table.to_pylist()]).encode()).hexdigest()


def processor():
    """What torch's kernels differ by: instructions, who made the processor, torch itself."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    said = {key.strip(): value.split() for key, _, value in (each.partition(":") for each in lines)}
    return {
        "torch": torch.__version__.partition("+")[0],
        "machine": platform.machine(),
        "maker": " ".join(said.get("vendor_id", [])),
        "instructions": sorted(
            each for each in said.get("flags", []) if each.startswith(("avx", "amx", "fma"))
        ),
    }


def made(name, folder):
    """The digests of a run of the case."""
    config, data = given(name, folder)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        outcome = distcore.experiment(
            config, data, output_directory=folder / "results", view="none"
        )
    finally:
        torch.set_num_threads(threads)
    return {
        "shards": shards(folder / "cache"),
        "weights": weights(Path(outcome.model)),
        "predictions": predictions(outcome.predictions),
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_bits_are_those_that_were_recorded(name, tmp_path):
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    found, kept = made(name, tmp_path), recorded["digests"][name]
    assert found.pop("shards") == kept.pop("shards")
    if recorded["processor"] != processor():
        pytest.skip(
            f"shards are compared; weights were recorded on {recorded['processor']}, this is "
            f"{processor()}"
        )
    assert found == kept


def record():
    digests = {}
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            digests[name] = made(name, Path(folder))
    text = json.dumps({"processor": processor(), "digests": digests}, indent=2, ensure_ascii=False)
    RECORD.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(record())
