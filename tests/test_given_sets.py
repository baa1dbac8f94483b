"""Separate sets whose columns have unlike types: a value is one category in all of them."""

import datetime as dt
import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import distcore
from distcore_data.cache import open_cache

DAY = dt.datetime(2024, 1, 5)
LATER = dt.datetime(2024, 1, 6)


def encoded(folder, **sets):
    """(labels of c, {split: the label of each row's c}, those of y)."""
    config = {
        "input_features": [{"name": "c", "type": "category"}],
        "output_features": [{"name": "y", "type": "category"}],
        "backend": {"cache_dir": str(folder / "cache")},
    }
    with open_cache(distcore.preprocess(config, **sets)) as reader:
        labels = {name: list(reader.metadata[name]["idx2str"]) for name in ("c", "y")}
        found = {
            split: [
                [labels[name][code] for code in part.column(name).to_pylist()]
                for name in ("c", "y")
            ]
            for split in reader.manifest["splits"]
            if reader.rows(split)
            for part in [reader.read(split, 0, reader.rows(split), ["c", "y"])]
        }
    return labels, found


def table(c, y):
    return pa.table({"c": c, "y": y})


@pytest.mark.parametrize(
    ("train", "test", "wanted"),
    [
        ([1, 2, 2], [1.0, None, 2.0], ["1", "<UNK>", "2"]),
        ([1.0, 2.0, 2.0], [2, 1], ["2", "1"]),
        (["true", "false", "true"], [True, False], ["True", "False"]),
        ([DAY, LATER, DAY], [DAY, dt.datetime(2024, 1, 6, 10)], ["2024-01-05", None]),
        (["a", "b", "a"], ["b", "c"], ["b", "c"]),
        (["1.1", "1.10", "1.1"], ["1.10", "1.1"], ["1.10", "1.1"]),
    ],
)
def test_a_value_is_one_category_in_all_frames(tmp_path, train, test, wanted):
    labels, found = encoded(
        tmp_path,
        training_set=table(train, [0, 1, 1]),
        test_set=table(test, [0.0, *[1.0] * (len(test) - 1)]),
    )
    rows = found["test"][0]
    assert [one for one, other in zip(rows, wanted, strict=True) if other] == [
        *filter(None, wanted)
    ]
    assert len(labels["c"]) == len({"<UNK>", *found["train"][0], *rows})
    assert labels["y"] == ["1", "0"]
    assert found["test"][1] == ["0", *["1"] * (len(test) - 1)]


def test_a_value_is_one_category_in_files_of_any_kind(tmp_path):
    pa.csv.write_csv(table([1, 2, 2], [0, 1, 1]), tmp_path / "train.csv")
    pa.parquet.write_table(table([2.0, 1.0, None], [1, 0, 1]), tmp_path / "validation.parquet")
    rows = [{"c": 1, "y": 0}, {"c": 2.5, "y": 1}, {"c": 2, "y": 1}]
    (tmp_path / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    labels, found = encoded(
        tmp_path,
        training_set=tmp_path / "train.csv",
        validation_set=tmp_path / "validation.parquet",
        test_set=tmp_path / "test.jsonl",
    )
    assert labels["c"] == ["<UNK>", "2", "1", "2.5"]
    assert found["train"][0] == ["1", "2", "2"]
    assert found["validation"][0] == ["2", "1", "<UNK>"]
    assert found["test"][0] == ["1", "2.5", "2"]


def test_one_set_has_the_categories_that_it_spells(tmp_path):
    rows = table(["3", "3.0", "3"], ["a", "b", "b"])
    assert encoded(tmp_path, training_set=rows)[0]["c"] == ["<UNK>", "3", "3.0"]
