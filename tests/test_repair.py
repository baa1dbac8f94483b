"""A cache that was damaged after it was built, and the next run: only the damaged files are made
again, to the same bytes."""

import hashlib
import re

import pytest

from distcore_data.cache import SHARD_ROWS

CONFIG = """\
input_features:
  - {name: age, type: number, preprocessing: {missing_value_strategy: STRATEGY, normalization: zscore}}
  - {name: city, type: category}
output_features:
  - {name: bought, type: binary}
preprocessing: {split: {type: random, probabilities: [0.6, 0.2, 0.2]}SAMPLE}
trainer: {epochs: 1, batch_size: 32}
backend: {type: local, cache_format: FORMAT}
"""


def config(format="parquet", strategy="fill_with_mean", sample=""):
    return CONFIG.replace("FORMAT", format).replace("STRATEGY", strategy).replace("SAMPLE", sample)


def files(place):
    """{name: (digest, inode)} of what is in the one cache."""
    (folder,) = (place.folder / ".distcore_cache").iterdir()
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_ino,
        )
        for path in paths
    }


def damage(place, *names):
    """One bit in the middle of each of these files."""
    (folder,) = (place.folder / ".distcore_cache").iterdir()
    for name in names:
        (path,) = folder.glob(name)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


def repaired(place, *names):
    """The files that the next run said it made again; all have the bytes of before, and no other
    was touched."""
    before = files(place)
    damage(place, *names)
    done = place.good("preprocess")
    after = files(place)
    assert {name: digest for name, (digest, _) in after.items()} == {
        name: digest for name, (digest, _) in before.items()
    }
    made = re.findall(
        r"(\w+/\w+)\.\w+ of the cache is damaged.* It is made again from the data\.", done.err
    )
    changed = [name.partition(".")[0] for name in after if after[name][1] != before[name][1]]
    assert sorted(made) == sorted(changed)
    return sorted(made)


@pytest.mark.parametrize(
    "format", ["parquet", "hdf5", "tfrecord", "{type: hdf5, compression: gzip}"]
)
def test_in_every_format(place, format):
    place.write(place.config, config(format))
    place.good("preprocess")
    assert repaired(place, "train/*", "rows/*") == ["rows/00000", "train/00000"]
    assert repaired(place) == []


@pytest.mark.parametrize("sample", ["", ", sample_ratio: 0.5", ", sample_size: 100"])
@pytest.mark.parametrize(
    "strategy", ["fill_with_mean", "drop_row", "fill_with_const", "bfill", "ffill"]
)
def test_whatever_the_rows_go_through(place, strategy, sample):
    place.write(place.config, config(strategy=strategy, sample=sample))
    lines = (place.folder / place.data).read_text().splitlines()
    place.write(
        place.data,
        "\n".join(
            "," + line.partition(",")[2] if n % 7 == 3 else line for n, line in enumerate(lines)
        ),
    )
    place.good("preprocess")
    assert repaired(place, "validation/*") == ["validation/00000"]


def test_one_shard_of_several(place, row):
    rows = SHARD_ROWS + 500
    lines = (f"{age},{city},{bought}\n" for age, city, bought in map(row, range(rows)))
    place.write(place.data, "age,city,bought\n" + "".join(lines))
    place.good("preprocess")
    assert repaired(place, "train/00001.*", "rows/00000.*") == ["rows/00000", "train/00001"]


def test_the_run_goes_on_to_the_weights_of_an_undamaged_one(place):
    place.good("train", "--model_name", "whole")
    damage(place, "train/*")
    done = place.good("train")
    assert "It is made again from the data." in done.err
    weights = [
        place.folder / "results" / f"experiment_{name}" / "model/weights.safetensors"
        for name in ("whole", "run")
    ]
    assert weights[0].read_bytes() == weights[1].read_bytes()
