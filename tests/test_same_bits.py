"""One config and dataset, the same bits: whatever the format, the partitions, the threads and
the number of workers."""

import hashlib
import json
import os
import random
import re
import shutil
from itertools import chain
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import distcore
from distcore_core.contracts import LOADER, LoadRequest
from distcore_core.registry.manager import Plugins
from distcore_data.cache import open_cache

pytestmark = pytest.mark.system

CONFIG = """\
input_features:
  - {name: age, type: number, preprocessing: {missing_value_strategy: fill_with_mean, normalization: zscore}, encoder: {type: ple, num_bins: 8, output_size: 4}}
  - {name: price, type: number, preprocessing: {missing_value_strategy: bfill, normalization: iq}}
  - {name: member, type: binary}
  - {name: city, type: category, preprocessing: {missing_value_strategy: fill_with_mode}}
  - {name: zone, type: category}
  - {name: tags, type: set}
  - {name: review, type: text, encoder: {type: embed, embedding_size: 4}}
output_features:
  - {name: bought, type: binary}
  - {name: stars, type: category}
  - {name: score, type: number}
preprocessing: {split: {type: stratify, column: stars, probabilities: [0.6, 0.2, 0.2]}}
trainer: {epochs: 1, batch_size: 64}
backend: {type: local, cache_dir: CACHE, processor: {type: local, parallelism: 1}}
"""


def table(rows=3000):
    """Every kind of column, with values that miss, texts that need quotes, and numbers of many
    digits."""
    dice = random.Random(5)

    def some(value, share=0.1):
        return None if dice.random() < share else value

    columns = {
        "age": [some(float(dice.randint(1, 99))) for _ in range(rows)],
        "price": [some(dice.gauss(0, 1) * 10 ** dice.randint(-3, 6)) for _ in range(rows)],
        "zone": [some(dice.randint(1, 9)) for _ in range(rows)],
        "member": [some(dice.random() < 0.4) for _ in range(rows)],
        "city": [
            some(dice.choice(["Rome", "São Paulo", 'the "Hague"', "Oslo, N", "東京"]))
            for _ in range(rows)
        ],
        "tags": [some(" ".join(dice.sample("abcdef", dice.randint(1, 4)))) for _ in range(rows)],
        "review": [
            some(" ".join(dice.choices(["good,", "bad", "fine!"], k=dice.randint(1, 9))))
            for _ in range(rows)
        ],
        "bought": [dice.choice(["yes", "no"]) for _ in range(rows)],
        "stars": [dice.choice(["one", "two", "three"]) for _ in range(rows)],
        "score": [dice.random() for _ in range(rows)],
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def rows():
    return table()


def as_jsonl(found, path):
    path.write_text("".join(json.dumps(row) + "\n" for row in found.to_pylist()))


FORMATS = {
    "csv": lambda found, path: pacsv.write_csv(found, path),
    "tsv": lambda found, path: pacsv.write_csv(found, path, pacsv.WriteOptions(delimiter="\t")),
    "csv.gz": lambda found, path: pacsv.write_csv(
        found, pa.CompressedOutputStream(str(path), "gzip")
    ),
    "parquet": lambda found, path: pq.write_table(found, path, row_group_size=700),
    "jsonl": as_jsonl,
    "feather": lambda found, path: feather.write_feather(found, str(path), chunksize=500),
}
FRAMES = {
    "pyarrow": lambda found: found,
    "pandas": lambda found: found.to_pandas(
        integer_object_nulls=True
    ),  # else whole numbers become floats
    "polars": pl.from_arrow,
}


def config_in(folder, parallelism=1):
    """The config with a cache folder of its own."""
    text = CONFIG.replace("CACHE", str(folder)).replace(
        "parallelism: 1", f"parallelism: {parallelism}"
    )
    path = folder.with_suffix(".yaml")
    path.write_text(text)
    return path


def bits(cache):
    """What the cache says and the digest of every file of data, but for the name of the source."""
    manifest = json.loads((cache / "manifest.json").read_text())
    files = {
        f"{split}/{shard['file']}": (shard["rows"], shard["sha256"])
        for split, each in manifest["splits"].items()
        for shard in each["shards"]
    }
    assert files
    return {"metadata": manifest["metadata"], "columns": manifest["columns"], "files": files}


@pytest.fixture(scope="module")
def expected(tmp_path_factory, rows):
    """The bits of the cache that one thread makes of a csv."""
    folder = tmp_path_factory.mktemp("expected")
    pacsv.write_csv(rows, folder / "data.csv")
    cache = distcore.preprocess(config_in(folder / "cache"), dataset=folder / "data.csv")
    return bits(cache.folder)


# ------------------------------------------------------------------ the cache


@pytest.mark.parametrize("name", FORMATS)
def test_a_cache_is_the_same_from_every_format(tmp_path, rows, expected, name):
    path = tmp_path / f"data.{name}"
    FORMATS[name](rows, path)
    cache = distcore.preprocess(config_in(tmp_path / "cache"), dataset=path)
    assert bits(cache.folder) == expected


@pytest.mark.parametrize("name", FRAMES)
def test_a_cache_is_the_same_from_every_frame(tmp_path, rows, expected, name):
    cache = distcore.preprocess(config_in(tmp_path / "cache"), dataset=FRAMES[name](rows))
    assert bits(cache.folder) == expected


@pytest.mark.parametrize(
    ("parallelism", "size"), [(1, 1 << 13), (2, 1 << 13), (2, 1 << 16), (4, 1 << 11), (4, 1 << 16)]
)
def test_a_cache_is_the_same_from_any_partitions_and_threads(
    tmp_path, rows, expected, monkeypatch, parallelism, size
):
    from distcore_data.sources import tiles

    monkeypatch.setattr(tiles, "TARGET_BYTES", size)
    monkeypatch.setattr(tiles, "SMALLEST_BYTES", size)
    pacsv.write_csv(rows, tmp_path / "data.csv")
    cache = distcore.preprocess(
        config_in(tmp_path / "cache", parallelism), dataset=tmp_path / "data.csv"
    )
    assert bits(cache.folder) == expected


PLAIN = ("age", "price", "zone", "member", "bought", "stars", "score")
"""Columns that hold no quotes and are not read as texts."""


@pytest.mark.parametrize("threads", [1, 3])
def test_a_cache_is_the_same_with_and_without_the_compiled_reader(
    tmp_path, rows, monkeypatch, threads
):
    """On text that is plain, and that two partitions make odd, against Parquet."""
    from distcore_data.sources import plaintext, ranges, tiles

    monkeypatch.setattr(ranges, "STRIPE", 1 << 13)
    monkeypatch.setattr(tiles, "TARGET_BYTES", 1 << 14)
    monkeypatch.setattr(tiles, "SMALLEST_BYTES", 1 << 14)
    found = rows.select(PLAIN)
    pq.write_table(found, tmp_path / "data.parquet")
    lines = found.to_pandas(integer_object_nulls=True).to_csv(index=False).splitlines(keepends=True)
    middle = lines[2500].split(",")
    lines[2500] = ",".join(
        ["NaN" if not middle[0] else f"{middle[0]}000000000000000000000", *middle[1:]]
    )
    lines[2900] = lines[2900].replace("yes", '"yes"').replace("no", '"no"')
    (tmp_path / "data.csv").write_text("".join(lines))
    whole = CONFIG.splitlines(keepends=True)
    dropped = [
        line
        for line in whole
        if not any(f"name: {each}," in line for each in ("city", "tags", "review"))
    ]
    monkeypatch.setitem(globals(), "CONFIG", "".join(dropped))

    def cached(name, path):
        return bits(distcore.preprocess(config_in(tmp_path / name, threads), dataset=path).folder)

    taken = []
    read = plaintext.read

    def spy(*arguments):
        batch = read(*arguments)
        taken.append(batch is not None)
        return batch

    monkeypatch.setattr(plaintext, "read", spy)
    made = cached("with", tmp_path / "data.csv")
    assert plaintext.compiled is None or {True, False} == set(taken)
    monkeypatch.setattr(plaintext, "compiled", None)
    assert (
        made
        == cached("without", tmp_path / "data.csv")
        == cached("parquet", tmp_path / "data.parquet")
    )


def test_a_folder_of_files_is_the_same_as_one(tmp_path, rows, expected):
    (tmp_path / "data").mkdir()
    for number, start in enumerate(range(0, rows.num_rows, 1100)):
        pq.write_table(rows.slice(start, 1100), tmp_path / "data" / f"part-{number}.parquet")
    cache = distcore.preprocess(config_in(tmp_path / "cache"), dataset=tmp_path / "data")
    assert bits(cache.folder) == expected


# ------------------------------------------------------------------ hit or miss


def built(done):
    """Whether a command read the dataset to make a cache."""
    return bool(re.search(r"^encode ", done.err, re.MULTILINE))


def test_touch_copy_and_rename_hit_and_one_changed_byte_misses(place):
    text = (place.folder / place.config).read_text()
    text = text.replace(
        "backend: local", f"backend: {{type: local, cache_dir: {place.folder}/cache}}"
    )
    place.write(place.config, text)
    first = place.good("preprocess")
    assert built(first)
    data = place.folder / place.data
    os.utime(data, (1, 1))
    assert not built(place.good("preprocess"))
    (place.folder / "else where").mkdir()
    copy = Path(shutil.copy(data, place.folder / "else where" / "copied.csv"))
    done = place.good("preprocess", "--dataset", copy)
    assert not built(done)
    assert done.out == first.out
    data.rename(place.folder / "renamed.csv")
    assert not built(place.good("preprocess", "--dataset", place.folder / "renamed.csv"))
    content = copy.read_bytes()
    copy.write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])
    done = place.run("preprocess", "--dataset", copy)
    assert done.code != 0 or built(done)
    assert done.out != first.out
    copy.write_bytes(content)
    assert not built(place.good("preprocess", "--dataset", copy))


def test_what_decides_no_byte_of_the_data_hits(place):
    """Another network, trainer, loss or metric; another seed, split or normalisation misses."""
    text = (place.folder / place.config).read_text()
    place.good("preprocess")
    for more in (
        "combiner: {type: concat, output_size: 3}\n",
        "trainer: {epochs: 7, learning_rate: 1}\n",
        "defaults: {binary: {loss: {positive_class_weight: 3, weight: 2}}}\n",
    ):
        place.write(place.config, text.replace("trainer: {epochs: 1, batch_size: 32}\n", "") + more)
        assert not built(place.good("preprocess")), more
    for more in (
        "random_seed: 7\n",
        "preprocessing: {split: {probabilities: [0.5, 0.2, 0.3]}}\n",
        "defaults: {number: {preprocessing: {normalization: minmax}}}\n",
    ):
        place.write(place.config, text + more)
        assert built(place.good("preprocess")), more


def test_two_runs_at_once_build_one_cache(place, row):
    lines = (f"{age},{city},{bought}\n" for age, city, bought in map(row, range(150_000)))
    place.write(place.data, "age,city,bought\n" + "".join(lines))
    ended = [place.finish(each) for each in [place.start("preprocess"), place.start("preprocess")]]
    assert [each.code for each in ended] == [0, 0], ended
    assert ended[0].out == ended[1].out
    assert sorted(map(built, ended)) == [False, True]
    assert len(os.listdir(place.folder / ".distcore_cache")) == 1


# ------------------------------------------------------------------ training

OWN = """
import json, os
import torch

class Net(torch.nn.Module):
    '''Writes down which rows each forward pass of training sees.'''
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def forward(self, batch):
        if self.training:
            with open(os.path.join(os.environ["SEEN"], os.environ.get("RANK", "0")), "a") as file:
                file.write(json.dumps(batch["number"].int().tolist()) + "\\n")
        return self.layers(batch["number"][:, None] / 500)
"""
NUMBERED = """\
input_features: [{name: number, type: number, preprocessing: {normalization: null}}]
output_features: [{name: large, type: binary}]
model: {type: module, class: "own_net_that_writes:Net"}
trainer: {epochs: 2, effective_batch_size: 64, learning_rate: 0.01, learning_rate_scaling: constant}
backend: {type: local, trainer: {type: TRAINER}}
"""


def seen_by(place, trainer):
    """(the rows of each global batch in their order, the statistics) of a run with this trainer."""
    name = re.sub(r"\W+", "_", trainer)
    place.write("own_net_that_writes.py", OWN)
    place.write(place.config, NUMBERED.replace("TRAINER", trainer))
    (place.folder / name).mkdir()
    done = place.process(
        "train", "--model_name", name, SEEN=str(place.folder / name), PYTHONPATH=str(place.folder)
    )
    assert done.code == 0, done.err
    ranks = [
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted((place.folder / name).iterdir())
    ]
    batches = [[number for rank in parts for number in rank] for parts in zip(*ranks, strict=True)]
    folder = place.folder / "results" / f"experiment_{name}"
    return batches, json.loads((folder / "training_statistics.json").read_text()), len(ranks)


@pytest.fixture
def numbered(place):
    """1000 rows that say their own number."""
    dice = random.Random(1)
    lines = [f"{number},{number + dice.randint(-100, 100) > 500}\n" for number in range(1000)]
    place.write(place.data, "number,large\n" + "".join(lines))
    return place


def test_any_number_of_workers_sees_the_same_global_batches(numbered):
    """And the metrics are those of one process, but for the order in which floats are summed."""
    batches, statistics, ranks = seen_by(numbered, "local")
    assert ranks == 1
    assert max(map(len, batches)) == 64
    epoch = len(batches) // 2
    assert sorted(chain(*batches[:epoch])) == sorted(chain(*batches[epoch:]))
    assert batches[:epoch] != batches[epoch:]
    for workers in (2, 4):
        found, theirs, ranks = seen_by(numbered, f"ddp, num_workers: {workers}")
        assert ranks == workers
        assert [sorted(each) for each in found] == [sorted(each) for each in batches]
        assert found == batches
        for split in ("training", "validation"):
            for metric, values in statistics[split]["large"].items():
                assert theirs[split]["large"][metric] == pytest.approx(values, abs=1e-4), metric


def weights(folder):
    return hashlib.sha256((folder / "model" / "weights.safetensors").read_bytes()).hexdigest()


def test_the_same_seed_gives_the_same_weights(tmp_path, rows):
    """Twice; from another format; and not from another seed."""
    pacsv.write_csv(rows, tmp_path / "data.csv")
    config, out = config_in(tmp_path / "cache"), tmp_path / "results"
    found = [
        weights(
            distcore.train(config, dataset=data, random_seed=seed, output_directory=out).directory
        )
        for data, seed in (
            (tmp_path / "data.csv", 3),
            (tmp_path / "data.csv", 3),
            (rows, 3),
            (rows, 4),
        )
    ]
    assert found[0] == found[1] == found[2]
    assert found[3] != found[0]


def test_the_loader_decides_nothing_but_speed(tmp_path, rows):
    """In memory, or from windows of a scratch file, with and without a thread that reads ahead."""
    found = set()
    loaders = (
        "fully_executed: true",
        "fully_executed: false",
        "fully_executed: false, prefetch: 0",
    )
    for number, loader in enumerate(loaders):
        config = config_in(tmp_path / "cache")
        text = config.read_text().replace(
            "processor:", f"loader: {{{loader}, window_size_bytes: 20000}}, processor:"
        )
        config.write_text(text)
        outcome = distcore.train(
            config, dataset=rows, output_directory=tmp_path, model_name=str(number)
        )
        found.add(weights(outcome.directory))
    assert len(found) == 1


CACHE_FORMATS = {
    "parquet": "cache_format: parquet",
    "hdf5": "data_format: hdf5",  # the older word
    "hdf5 gzip": "cache_format: {type: hdf5, compression: gzip, chunk_rows: 1024}",
    "tfrecord": "cache_format: tfrecord",
    "tfrecord gzip": "cache_format: {type: tfrecord, compression: gzip}",
}


def batches_of(cache):
    """The digest of every bit of the training batches of an epoch."""
    plugins, digest, count = Plugins(), hashlib.sha256(), 0
    with open_cache(cache, plugins) as reader:
        request = LoadRequest(
            reader=reader, split="train", columns=list(reader.columns), batch_size=64, seed=7
        )
        loader = plugins.make(LOADER, "packed", {}, request=request)
        for batch in loader.batches(epoch=1):
            digest.update(batch.packed.numpy().tobytes())
            for name, each in sorted(batch.ragged.items()):
                digest.update(
                    name.encode() + each.values.numpy().tobytes() + each.offsets.numpy().tobytes()
                )
            count += 1
        loader.close()
    assert count > 20
    return digest.hexdigest()


def test_the_cache_format_decides_nothing_but_the_files(tmp_path, rows):
    """The same batches and the same final weights from each; every one has a cache of its own."""
    found, caches = {}, set()
    for number, (name, line) in enumerate(CACHE_FORMATS.items()):
        config = config_in(tmp_path / "cache")
        config.write_text(config.read_text().replace("processor:", f"{line}, processor:"))
        cache = distcore.preprocess(config, dataset=rows)
        outcome = distcore.train(
            config, dataset=rows, output_directory=tmp_path, model_name=str(number)
        )
        found[name] = (batches_of(cache), weights(outcome.directory))
        caches.add(cache.key)
    assert len(set(found.values())) == 1, found
    assert len(caches) == len(CACHE_FORMATS)
    suffixes = {"".join(path.suffixes) for path in (tmp_path / "cache").rglob("train/*")}
    assert suffixes == {".parquet", ".h5", ".tfrecord", ".tfrecord.gz"}


def test_a_cache_format_that_is_not_there_says_what_to_install(place, absent):
    text = (place.folder / place.config).read_text()
    absent("distcore-hdf5")
    for line, words in (
        ("cache_format: hdf5", "pip install distcore-hdf5"),
        ("data_format: hdf7", "parquet"),
    ):
        place.write(
            place.config, text.replace("backend: local", f"backend: {{type: local, {line}}}")
        )
        assert words in place.refused(*place.words("preprocess"))
