"""Inputs of dates from files to predictions: what is learned of them, and what is said of a value
that is none."""

import datetime
import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from tests.conftest import some

import distcore
from distcore_core.errors import DataError

ROWS = 1500
FIRST = datetime.datetime(2019, 12, 30)


def table(rows=ROWS):
    """Busy: from eight to six of working days, but for one row in 25."""
    random = np.random.default_rng(5)
    times = [
        FIRST + datetime.timedelta(minutes=int(each)) for each in random.integers(0, 10**6, rows)
    ]
    busy = [when.weekday() < 5 and 8 <= when.hour < 18 for when in times]
    flipped = np.array(busy) ^ (random.random(rows) < 0.04)
    return pa.table({"when": pa.array(times, pa.timestamp("s")), "busy": flipped})


def config(tmp_path, encoder="embed", trainer=None, backend=None, **preprocessing):
    section = {"encoder": {"type": encoder}, "preprocessing": preprocessing}
    return {
        "input_features": [{"name": "when", "type": "date", **section}],
        "output_features": [{"name": "busy", "type": "binary"}],
        "trainer": {"epochs": 12, "batch_size": 32, "learning_rate": 0.005, **(trainer or {})},
        "backend": {"type": "local", "cache_dir": str(tmp_path / "cache"), **(backend or {})},
    }


@pytest.mark.parametrize("encoder", ["embed", "wave"])
def test_weekday_and_hour_are_learned(encoder, tmp_path):
    data = table()
    outcome = distcore.experiment(
        config(tmp_path, encoder), data, output_directory=tmp_path / "results", view="none"
    )
    often = max(np.mean(data["busy"].to_numpy(zero_copy_only=False)), 0.5)
    often = max(often, 1 - often)
    assert often < 0.75
    assert outcome.test_statistics["busy"]["accuracy"] > 0.88
    # From the model's folder alone, and whether the rows come as timestamps or as texts.
    folder = tmp_path / "results" / "experiment_run" / "model"
    shown = []
    for name, rows in (("rows.parquet", data), ("rows.csv", data)):
        path = tmp_path / name
        pq.write_table(rows, path) if name.endswith("parquet") else csv.write_csv(rows, path)
        shown.append(distcore.load(folder).predict(path))
    assert shown[0].equals(shown[1])
    assert shown[0].num_rows == ROWS


@pytest.mark.parametrize("kind", ["hash", "datetime"])
def test_a_split_by_dates_is_that_of_their_texts(kind, tmp_path):
    """The cache of a source that has times is that of one that has texts of them, to the bit."""
    found = set()
    pq.write_table(table(600), tmp_path / "rows.parquet")
    csv.write_csv(table(600), tmp_path / "rows.csv")
    for name in ("rows.parquet", "rows.csv"):
        given = config(tmp_path / name.replace(".", "_"))
        given["preprocessing"] = {"split": {"type": kind, "column": "when"}}
        cache = distcore.preprocess(given, tmp_path / name, view="none")
        files = sorted(Path(cache.where).rglob("*.parquet"))
        assert len({each.parent.name for each in files}) == 4
        found.add(tuple(hashlib.sha256(each.read_bytes()).hexdigest() for each in files))
    assert len(found) == 1


def refused(tmp_path, given, path):
    with pytest.raises(DataError) as caught:
        distcore.preprocess(given, path, view="none")
    assert not list(tmp_path.glob("cache/*/manifest*"))
    return str(caught.value)


def test_a_value_that_is_no_date_is_told_by_file_row_and_column(tmp_path):
    path = tmp_path / "rows.csv"
    texts = [f"2020-01-{day:02}" for day in range(1, 29)] * 2
    texts[40] = "31/12/2020"
    path.write_text("when,busy\n" + "".join(f"{each},{at % 2}\n" for at, each in enumerate(texts)))
    said = refused(tmp_path, config(tmp_path), path)
    assert f"{path}, line 42, column 'when': '31/12/2020' is not a date" in said
    assert "preprocessing.datetime_format" in said
    for strategy in ("bfill", "drop_row"):
        said = refused(tmp_path, config(tmp_path, missing_value_strategy=strategy), path)
        assert f"{path}, line 42, column 'when': '31/12/2020'" in said
    rows, columns = tmp_path / "rows.parquet", csv.read_csv(path)
    pq.write_table(columns, rows)
    assert f"{rows}, row 40, column 'when': '31/12/2020'" in refused(
        tmp_path, config(tmp_path), rows
    )
    lines = tmp_path / "rows.jsonl"
    lines.write_text("\n".join(json.dumps(each) + "\n" for each in columns.to_pylist()))
    said = refused(tmp_path, config(tmp_path), lines)
    assert f"{lines}, line 81, column 'when': '31/12/2020'" in said
    said = refused(tmp_path, config(tmp_path), columns)
    assert "in memory, row 40 (the first is 0), column 'when': '31/12/2020'" in said
    said = refused(tmp_path, config(tmp_path), columns.to_pydict())
    assert said.startswith("dict in memory, row 40 ")


def test_a_value_is_told_with_the_column_that_the_file_has(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("departure,busy\n2020-01-31,0\n2020-01-31,1\nsoon,1\n")
    given = config(tmp_path)
    given["input_features"][0]["column"] = "departure"
    said = refused(tmp_path, given, path)
    assert f"{path}, line 4, column 'departure' (feature 'when'): 'soon' is not a date" in said
    path.write_text("departure,busy\n,0\n,1\n")
    said = refused(tmp_path, given, path)
    assert f"{path}: Column 'departure' (feature 'when') has no value in any row" in said
    with pytest.raises(DataError) as planned:
        distcore.plan(given, path)
    assert str(planned.value) == said


def test_predict_tells_the_row_wherever_it_lies(tmp_path, monkeypatch):
    from distcore_data.encoding import stream

    monkeypatch.setattr(stream.encode_stream, "__defaults__", (("input", "output"), 4096))
    results = tmp_path / "results"
    given = config(tmp_path, trainer={"epochs": 1})
    distcore.experiment(given, table(300), output_directory=results, view="none")
    model = distcore.load(results / "experiment_run" / "model")
    path = tmp_path / "new.csv"
    texts = ["2020-01-31 10:00"] * 3000
    texts[2500] = "soon"
    path.write_text("when\n" + "\n".join(texts) + "\n")
    with pytest.raises(DataError) as caught:
        model.predict(path)
    assert f"{path}, line 2502, column 'when': 'soon'" in str(caught.value)
    texts[2500], texts[7] = "", "1899-02-28T01:02:03.5Z"
    path.write_text("when\n" + "\n".join(f'"{each}"' for each in texts) + "\n")
    assert model.predict(path).num_rows == 3000


@pytest.mark.system
@pytest.mark.parametrize("encoder", some(["embed", "wave"], ["wave"]))
def test_exact_training_has_one_sha256(encoder, tmp_path):
    found = set()
    for workers in (1, 2):
        backend = {"trainer": {"type": "data_parallel", "num_workers": workers}}
        given = config(tmp_path, encoder, {"exact": True, "epochs": 1, "batch_size": 100}, backend)
        folder = tmp_path / f"results_{workers}"
        distcore.experiment(given, table(600), output_directory=folder, view="none")
        weights = folder / "experiment_run" / "model" / "weights.safetensors"
        found.add(hashlib.sha256(weights.read_bytes()).hexdigest())
    assert len(found) == 1
