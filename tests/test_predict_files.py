"""Where `distcore predict` writes: CSV or Parquet by the ending, keys beside the predictions,
nothing overwritten."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from pyarrow import csv as pa_csv

import distcore
from distcore.cli.main import main
from distcore.workflow import results
from distcore.workflow.going_on import config_to_resume
from distcore.workflow.kept import Kept
from distcore_core.errors import DataError, TrainingError, UserError
from distcore_core.io.atomic import new_file_beside
from distcore_data.run_files import TEST_STATISTICS
from distcore_data.sources import registry
from distcore_testing import data
from distcore_torch import decoding, prediction

PENGUINS = Path(__file__).parent.parent / "examples" / "penguins"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a model of one epoch."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copy(PENGUINS / "penguins.csv", folder)
    config = folder / "config.yaml"
    config.write_text((PENGUINS / "config.yaml").read_text().replace("epochs: 40", "epochs: 1"))
    distcore.train(config, dataset=folder / "penguins.csv", output_directory=folder)
    return folder


def predict(trained: Path, *words: str) -> int:
    model, data = str(trained / "experiment_run"), str(trained / "penguins.csv")
    return main(["predict", "-m", model, "--dataset", data, *words])


def test_csv_with_keys(trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "found.csv"
    assert (
        predict(trained, "--output_file", str(path), "--keep", "island", "-k", "body_mass_g") == 0
    )
    with path.open() as file:
        rows = list(csv.DictReader(file))
    with (trained / "penguins.csv").open() as file:
        given = list(csv.DictReader(file))
    assert list(rows[0])[:3] == ["island", "body_mass_g", "species_predictions"]
    assert [row["island"] for row in rows] == [row["island"] for row in given]
    table = distcore.load(trained / "experiment_run").predict(trained / "penguins.csv")
    assert [row["species_predictions"] for row in rows] == table["species_predictions"].to_pylist()


@pytest.mark.parametrize(
    ("read", "predicted"), [([5], [1, 3, 1]), ([3, 0, 2], [5]), ([1, 2, 0, 2], [2, 0, 2, 1])]
)
def test_kept_columns_are_those_of_the_rows_however_both_are_cut(
    read: list[int], predicted: list[int]
) -> None:
    def cut(values: pa.RecordBatch, sizes: list[int]) -> list[pa.RecordBatch]:
        return [values.slice(sum(sizes[:at]), size) for at, size in enumerate(sizes)]

    keys = pa.record_batch({"other": list("vwxyz"), "key": list("abcde")})
    parts = [SimpleNamespace(read=partial(lambda part: part, each)) for each in cut(keys, read)]
    source: Any = SimpleNamespace(partitions=lambda most: parts)
    kept = Kept(source, pa.schema([("key", pa.string())]))
    found = list(kept.beside(iter(cut(pa.record_batch({"y": range(5)}), predicted))))
    assert [each.num_rows for each in found] == predicted
    table = pa.Table.from_batches(found)
    assert table.to_pydict() == {"key": list("abcde"), "y": [0, 1, 2, 3, 4]}


@pytest.mark.parametrize(
    ("rows", "most"), [(65_536, 4 << 20), (40, 4 << 20), (7, 4 << 20), (40, 100)]
)
def test_passes_that_are_decoded_together_are_those_decoded_alone(
    trained: Path, monkeypatch: pytest.MonkeyPatch, rows: int, most: int
) -> None:
    monkeypatch.setattr(decoding, "DECODED_ROWS", rows)
    monkeypatch.setattr(decoding, "LARGE_BYTES", most)
    model = distcore.load(trained / "experiment_run")
    layout = prediction.layout_of(model.features, ("input",))
    passes = []
    with prediction.encoded_stream(model, trained / "penguins.csv", ("input",), None) as (
        _,
        stream,
    ):
        for piece in stream.pieces():
            for size in (16, 100, 1):
                batches = prediction.forward(model, piece.batch, layout, piece.first, size)
                passes += [outputs for _, outputs in batches]
    alone = [decoding.decoded(model.features, each) for each in passes]
    assert list(decoding.decoded_passes(model.features, iter(passes))) == alone


def test_the_block_of_wide_outputs_is_no_larger_than_that_of_narrow_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two rows of half a million classes asked for 122 GiB."""
    made = []

    def empty(shape: tuple[int, ...], dtype: Any) -> Any:
        made.append(shape)
        return np.zeros(shape, dtype)

    monkeypatch.setattr(decoding, "np", SimpleNamespace(empty=empty))
    monkeypatch.setattr(decoding, "_slices", lambda features, block, sizes: [sizes])
    outputs = {"y": np.zeros((2, 400_000), np.float32)}
    features: Any = None
    assert list(decoding.decoded_passes(features, iter([outputs] * 30))) == [[2] * 20, [2] * 10]
    assert made == [(41, 400_000)] * 2


def test_many_rows_take_little_more_memory_than_few(tmp_path: Path) -> None:
    lines = [f"{at % 17 / 3},{at % 5},{at % 3 == 0}" for at in range(100_000)]
    for name, rows in (("few", 200), ("many", len(lines))):
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,y", *lines[:rows]]) + "\n")
    config = {
        "input_features": [{"name": "a", "type": "number"}, {"name": "b", "type": "number"}],
        "output_features": [{"name": "y", "type": "binary"}],
        "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 256},
        "trainer": {"epochs": 1},
    }
    model = distcore.train(config, dataset=tmp_path / "few.csv", output_directory=tmp_path).model

    def peak(name: str) -> int:
        """MB of a whole command."""
        words = ["predict", "-m", model, "--dataset", tmp_path / f"{name}.csv", "-od", tmp_path]
        command = [sys.executable, "-c", PEAK, *map(str, words), "--overwrite"]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return int(said.splitlines()[-1]) // 1024

    assert peak("many") < peak("few") + 60


PEAK = """
import re, sys
from pathlib import Path
from typing import Any
from distcore.cli.main import main
from distcore.workflow import results
main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""
"""The system's own figure counts the memory of whoever started the process."""


def test_a_list_in_a_column_of_csv_is_json(tmp_path: Path) -> None:
    from distcore_torch.prediction_files import write_predictions

    batch = pa.record_batch({"found": [["a", "b"], None], "p": [0.5, 0.25], "q": [[1.5], []]})
    write_predictions(tmp_path / "x.csv", [batch], batch.schema)
    with (tmp_path / "x.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["found"] for row in rows] == ['["a", "b"]', ""]
    assert [row["q"] for row in rows] == ["[1.5]", "[]"]


def test_whole_numbers_of_a_frame_stay_whole_numbers(trained: Path, tmp_path: Path) -> None:
    table = pa_csv.read_csv(trained / "penguins.csv")
    ids = pa.array([2**60 + number for number in range(table.num_rows)])
    path = distcore.predict(
        trained / "experiment_run",
        table.append_column("id", ids),
        output_file=tmp_path / "x.parquet",
        keep=["id"],
    )
    assert pq.read_table(path)["id"].combine_chunks().equals(ids)


def every_type(rows: int) -> dict[str, pa.Array]:
    """A column of each type that Parquet may have beside text."""
    count, moment = range(rows), datetime(2024, 1, 5, 10, 0, 1, 250_000, tzinfo=UTC)
    moments = [None if each % 3 == 2 else moment + each * timedelta(hours=7) for each in count]
    halves = [None if each % 5 == 4 else each / 7 for each in count]
    return {
        "double": pa.array(halves),
        "single": pa.array(halves, pa.float32()),
        "half": pa.array(halves, pa.float32()).cast(pa.float16()),
        "large": pa.array([2**64 - 1 - each for each in count], pa.uint64()),
        "small": pa.array([each % 100 for each in count], pa.int8()),
        "truth": pa.array([None if each % 3 == 2 else each % 2 == 0 for each in count]),
        "day": pa.array(moments, pa.timestamp("us", "UTC")).cast(pa.date32()),
        "moment": pa.array(moments, pa.timestamp("us", "UTC")).cast(pa.timestamp("us")),
        "zoned": pa.array(moments, pa.timestamp("us", "Europe/Berlin")),
        "time": pa.array(moments, pa.timestamp("us", "UTC")).cast(pa.time64("us")),
        "price": pa.array([Decimal(each) / 4 for each in count], pa.decimal128(12, 2)),
    }


def kept_of(trained: Path, dataset: object, names: list[str], target: Path) -> pa.Table:
    """The predictions with these columns beside them."""
    found = distcore.predict(trained / "experiment_run", dataset, output_file=target, keep=names)
    return pq.read_table(found)


@pytest.mark.parametrize("form", ["parquet", "feather", "frame"])
def test_kept_columns_keep_their_types(trained: Path, tmp_path: Path, form: str) -> None:
    table, path = pa_csv.read_csv(trained / "penguins.csv"), tmp_path / f"data.{form}"
    columns = every_type(table.num_rows)
    for name, values in columns.items():
        table = table.append_column(name, values)
    if form == "parquet":
        pq.write_table(table, path)
    elif form == "feather":
        pa.feather.write_feather(table, path)
    dataset = table if form == "frame" else path
    kept = kept_of(trained, dataset, list(columns), tmp_path / "x.parquet")
    for name, values in columns.items():
        assert kept[name].combine_chunks().equals(values), name


@pytest.mark.parametrize("form", ["parquet", "feather", "frame", "pandas"])
def test_a_kept_dictionary_is_kept_as_its_values(trained: Path, tmp_path: Path, form: str) -> None:
    table, path = pa_csv.read_csv(trained / "penguins.csv"), tmp_path / f"data.{form}"
    columns = every_type(table.num_rows)
    columns["text"] = pa.array([None if row % 4 == 3 else f" {row % 7}" for row in range(344)])
    if form == "pandas":  # which has no categories of these
        columns = {name: columns[name] for name in ("double", "small", "text", "large")}
    if form == "parquet":  # where a dictionary's times are in UTC
        del columns["zoned"]
    for name, values in columns.items():
        table = table.append_column(name, values.dictionary_encode())
    dataset: object = path
    if form == "parquet":
        pq.write_table(table, path)
    elif form == "feather":
        pa.feather.write_feather(table, path)
    else:
        dataset = table if form == "frame" else table.to_pandas()
    kept = kept_of(trained, dataset, list(columns), tmp_path / "x.parquet")
    for name, values in columns.items():
        assert kept[name].combine_chunks().equals(values), name


@pytest.mark.parametrize("form", ["parquet", "rows.parquet", "feather", "frame"])
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.float16()])
def test_a_kept_nan_is_no_missing_value(
    trained: Path, tmp_path: Path, form: str, kind: pa.DataType
) -> None:
    table, path = pa_csv.read_csv(trained / "penguins.csv"), tmp_path / f"data.{form}"
    some = [float("nan"), None, 0.1, float("-inf"), -0.0, float("nan")]
    given = pa.array([some[row % 6] for row in range(table.num_rows)], kind)
    table = table.append_column("x", given)
    if form.endswith("parquet"):
        size = {} if form == "parquet" else {"row_group_size": 50, "use_dictionary": False}
        pq.write_table(table, path, **size)
    elif form == "feather":
        pa.feather.write_feather(table, path)
    dataset = table if form == "frame" else path
    kept = kept_of(trained, dataset, ["x"], tmp_path / "x.parquet")["x"].combine_chunks()
    assert kept.type == kind
    assert list(map(str, kept.to_pylist())) == list(map(str, given.to_pylist()))


def test_kept_columns_whose_text_does_not_say_all_are_texts(
    trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And what is kept is no prediction, whatever it holds."""
    table, path = pa_csv.read_csv(trained / "penguins.csv").slice(0, 2), tmp_path / "data.feather"
    columns = {
        "fine": pa.array([1, None], pa.time64("ns")),
        "thousands": pa.array([Decimal(1200), None], pa.decimal128(5, -2)),
        "short": pa.array([Decimal("1.10"), None], pa.decimal32(5, 2)),
        "clock": pa.array([86_399_999, None], pa.time32("ms")),
        "endless": pa.array([float("inf"), 1.0]),
    }
    for name, values in columns.items():
        table = table.append_column(name, values)
    pa.feather.write_feather(table, path)
    found = distcore.predict(
        trained / "experiment_run", path, output_file=tmp_path / "x.parquet", keep=list(columns)
    )
    kept = pq.read_table(found).select(list(columns))
    texts = {"fine": "00:00:00.000000001", "thousands": "1.2E+3", "short": "1.10"}
    assert {name: kept[name][0].as_py() for name in texts} == texts
    for name in ("clock", "endless"):
        assert kept[name].combine_chunks().equals(columns[name]), name
    assert "not finite" not in caplog.text


@pytest.mark.parametrize(
    "values",
    [
        pa.array([10**15, None], pa.timestamp("ms")),
        pa.array([-5 * 10**9, None], pa.timestamp("s", "Europe/Amsterdam")),
    ],
    ids=["a year of five digits", "an offset of seconds"],
)
def test_a_kept_time_that_no_reader_takes_is_told(
    trained: Path, tmp_path: Path, values: pa.Array
) -> None:
    table, path = pa_csv.read_csv(trained / "penguins.csv").slice(0, 2), tmp_path / "data.parquet"
    pq.write_table(table.append_column("when", values), path)
    with pytest.raises(DataError, match=r"--keep when: .* in a csv file: --output_file"):
        distcore.predict(
            trained / "experiment_run", path, output_file=tmp_path / "x.parquet", keep=["when"]
        )
    assert not (tmp_path / "x.parquet").exists()
    found = distcore.predict(
        trained / "experiment_run", path, output_file=tmp_path / "x.csv", keep=["when"]
    )
    assert Path(found).read_text().count("\n") == 3


def test_kept_columns_of_unlike_files_are_texts_or_whole_numbers(
    trained: Path, tmp_path: Path
) -> None:
    table, folder = pa_csv.read_csv(trained / "penguins.csv").slice(0, 4), tmp_path / "parts"
    folder.mkdir()
    for number, unit in enumerate(["ms", "us"]):
        ids = pa.array([1, 2, 3, 4 + number * 2**40])
        part = table.append_column("id", ids if number else ids.cast("int32").dictionary_encode())
        part = part.append_column("day", pa.array([datetime(2022, 1, 8)] * 4, pa.timestamp(unit)))
        pq.write_table(part, folder / f"{number}.parquet")
    found = distcore.predict(
        trained / "experiment_run", folder, output_file=tmp_path / "x.parquet", keep=["id", "day"]
    )
    kept = pq.read_table(found)
    assert kept["id"].to_pylist() == [1, 2, 3, 4, 1, 2, 3, 4 + 2**40]
    assert set(kept["day"].to_pylist()) == {"2022-01-08"}


@pytest.mark.parametrize("turns", [False, True])
def test_a_dataset_that_is_fetched_twice_and_is_another_one_then_gives_no_predictions(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: bool
) -> None:
    """Each key stood beside another row's prediction."""
    head, *rows = (trained / "penguins.csv").read_text().splitlines(keepends=True)
    files, real = fsspec.filesystem("memory"), registry.download

    def turning(*arguments: Any, **named: Any) -> Any:
        found = real(*arguments, **named)
        if turns:
            rows.reverse()
        files.pipe("/kept/data.csv", "".join([head, *rows]).encode())
        return found

    files.pipe("/kept/data.csv", "".join([head, *rows]).encode())
    monkeypatch.setattr(registry, "download", turning)
    target, what = tmp_path / "x.parquet", (trained / "experiment_run", "memory://kept/data.csv")
    if turns:
        with pytest.raises(DataError, match="another one when its columns to keep were fetched"):
            distcore.predict(*what, output_file=target, keep=["island"])
        assert not target.exists()
        return
    distcore.predict(*what, output_file=target, keep=["island"])
    whole = pa_csv.read_csv(trained / "penguins.csv")["island"]
    assert pq.read_table(target)["island"].to_pylist() == whole.to_pylist()


def test_a_csv_has_the_texts(trained: Path, tmp_path: Path) -> None:
    table, path = pa_csv.read_csv(trained / "penguins.csv").slice(0, 2), tmp_path / "data.parquet"
    pq.write_table(table.append_column("x", pa.array([1.0, None])), path)
    found = distcore.predict(
        trained / "experiment_run", path, output_file=tmp_path / "x.csv", keep=["x", "year"]
    )
    with Path(found).open() as file:
        assert [(row["x"], row["year"]) for row in csv.DictReader(file)] == [
            ("1.0", str(each)) if not at else ("", str(each))
            for at, each in enumerate(table["year"].to_pylist())
        ]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_key_that_is_spelled_as_a_missing_value_is_kept(
    trained: Path, tmp_path: Path, ending: str
) -> None:
    given = pa_csv.read_csv(trained / "penguins.csv").slice(0, 6)
    keys = ["NA", "007", " pad ", "null", "1.50", "None"]
    table, path = given.append_column("key", pa.array(keys)), tmp_path / f"data.{ending}"
    (pa_csv.write_csv if ending == "csv" else pq.write_table)(table, path)
    found = distcore.predict(
        trained / "experiment_run", path, output_file=tmp_path / "x.parquet", keep=["key"]
    )
    assert pq.read_table(found)["key"].to_pylist() == keys


def test_a_row_without_a_value_is_no_empty_line(tmp_path: Path) -> None:
    from distcore_torch.prediction_files import write_predictions

    batch = pa.record_batch({"y_predictions": [2.5, None, 1.0]})
    write_predictions(tmp_path / "x.csv", [batch], batch.schema)
    with (tmp_path / "x.csv").open() as file:
        assert [row["y_predictions"] for row in csv.DictReader(file)] == ["2.5", "", "1"]
    assert "" not in (tmp_path / "x.csv").read_text().splitlines()


def test_an_evaluation_leaves_a_run_as_it_is(tmp_path: Path) -> None:
    config, table = data.config(str(tmp_path / "cache")), data.table()
    run = distcore.experiment(config, table, output_directory=tmp_path, view="none").directory
    before = {path: path.read_bytes() for path in Path(run).rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"description\.json is a run's"):
        distcore.evaluate(run, table, output_directory=run, view="none")
    assert before == {path: path.read_bytes() for path in Path(run).rglob("*") if path.is_file()}


LEFT_OUT = {
    "skip_save_training_description": ["description.json"],
    "skip_save_training_statistics": ["training_statistics.json", "ledger.jsonl"],
    "skip_save_report": ["report.html", "summary.json"],
    "skip_save_model": ["model"],
}


def test_a_run_is_known_by_whatever_it_left(tmp_path: Path) -> None:
    config, table = data.config(str(tmp_path / "cache")), data.table()
    run = distcore.experiment(
        config, table, output_directory=tmp_path, skip=set(LEFT_OUT) - {"skip_save_model"}
    ).directory
    model = shutil.copytree(run / "model", tmp_path / "mine")
    for name in [name for names in LEFT_OUT.values() for name in names]:
        shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink(missing_ok=True)
    assert {path.name for path in run.iterdir()} >= {"checkpoints", "test_statistics.json"}
    before = (run / "test_statistics.json").read_bytes()
    while True:
        with pytest.raises(UserError, match="is a run's, and its results were left") as refused:
            distcore.evaluate(model, table, output_directory=run, overwrite=True, view="none")
        assert before == (run / "test_statistics.json").read_bytes()
        sign = Path(str(refused.value).partition(" is a run's")[0])
        if sign.is_dir():
            break
        sign.unlink()
    shutil.rmtree(sign)
    distcore.evaluate(model, table, output_directory=run, overwrite=True, view="none")


def test_predictions_replace_none_of_a_run(tmp_path: Path) -> None:
    config, table = data.config(str(tmp_path / "cache")), data.table()
    run = distcore.experiment(config, table, output_directory=tmp_path, view="none").directory
    before = (run / "predictions.parquet").read_bytes()
    for overwrite in (False, True):
        with pytest.raises(UserError, match=r"description\.json is a run's"):
            distcore.predict(run, table, output_directory=run, overwrite=overwrite, view="none")
    assert before == (run / "predictions.parquet").read_bytes()
    for _ in range(2):  # a file that no run writes
        distcore.predict(run, table, output_file=run / "new.csv", overwrite=True, view="none")
    model = shutil.copytree(run / "model", tmp_path / "mine")
    (run / "predictions.parquet").unlink()
    with pytest.raises(UserError, match=r"description\.json is a run's"):
        distcore.evaluate(model, table, output_directory=run, overwrite=True, view="none")
    distcore.predict(model, table, output_directory=run, view="none")  # a training's, say
    (run / "predictions.parquet").unlink()
    shutil.rmtree(run / "model")  # as it is where a run was stopped, which would go on
    with pytest.raises(UserError, match=r"description\.json is a run's"):
        distcore.predict(model, table, output_directory=run, view="none")


def test_an_evaluation_replaces_another_one_if_asked(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", "-m", str(trained / "experiment_run"), "-od", str(tmp_path / "found")]
    words += ["--dataset", str(trained / "penguins.csv"), "-l", "error"]
    assert main(words) == 0
    first = {path: path.read_bytes() for path in (tmp_path / "found").iterdir()}
    said = "{} exists and was left as it is. Give another --output_directory, or --overwrite."
    predictions = tmp_path / "found" / "predictions.parquet"
    statistics = tmp_path / "found" / "test_statistics.json"
    for path in (predictions, statistics):
        path.write_bytes(b"mine")
        assert main(words) == 2
        assert said.format(predictions) in capsys.readouterr().err
        assert path.read_bytes() == b"mine"
        assert main([*words, "--overwrite"]) == 0
        assert first == {path: path.read_bytes() for path in (tmp_path / "found").iterdir()}
    predictions.unlink()
    assert main(words) == 2  # the other one is enough
    assert said.format(statistics) in capsys.readouterr().err
    assert not predictions.exists()
    statistics.unlink()
    assert main([*words, "--skip_save_predictions"]) == 0  # writes over nothing


@pytest.mark.parametrize(
    ("command", "name"), [("predict", "predictions.parquet"), ("evaluate", "test_statistics.json")]
)
def test_what_comes_there_meanwhile_stays(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    """Of two commands that began together the later one wrote over what the other had found."""
    place, real = tmp_path / "found", results.predictions
    call = partial(
        getattr(distcore, command),
        trained / "experiment_run",
        trained / "penguins.csv",
        output_directory=place,
        view="none",
    )

    def beside_another_one(*arguments: Any, **options: Any) -> int:
        place.mkdir(exist_ok=True)
        (place / name).write_text("another one's")
        return real(*arguments, **options)

    monkeypatch.setattr(results, "predictions", beside_another_one)
    with pytest.raises(UserError, match=f"{name} exists and was left as it is"):
        call()
    assert [(each.name, each.read_text()) for each in place.iterdir()] == [(name, "another one's")]
    call(overwrite=True)
    assert (place / name).read_bytes() != b"another one's"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("command", "name"), [("predict", "predictions.parquet"), ("evaluate", "test_statistics.json")]
)
def test_what_another_command_writes_is_refused_before_any_work(
    trained: Path, tmp_path: Path, command: str, name: str, overwrite: bool
) -> None:
    """It was refused when all rows were predicted, and with --overwrite not at all."""
    call = partial(
        getattr(distcore, command),
        trained / "experiment_run",
        tmp_path / "not looked at.csv",
        output_directory=tmp_path,
        overwrite=overwrite,
        view="none",
    )
    said = f"{name} is being written by another command. Wait for its end, or give another"
    with new_file_beside(tmp_path / name) as (temporary, _):
        with pytest.raises(UserError, match=re.escape(said)):
            call()
        assert list(tmp_path.iterdir()) == [temporary]
        with pytest.raises(DataError, match="not looked at"):
            call(output_directory=tmp_path / "other")
    temporary.write_bytes(b"of one that was killed")
    with pytest.raises(DataError, match="not looked at"):
        call()
    assert not list(tmp_path.iterdir())


def test_what_stays_of_an_earlier_evaluation_is_told(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Predictions of one dataset lay beside the scores of another, in silence."""
    words = ["evaluate", "-m", str(trained / "experiment_run"), "-od", str(tmp_path)]
    words += ["--dataset", str(trained / "penguins.csv"), "--overwrite"]
    assert main(words) == 0
    assert "stays:" not in capsys.readouterr().err
    predictions, statistics = (tmp_path / each for each in ("predictions.parquet", TEST_STATISTICS))
    for option, stays in (
        ("--skip_save_predictions", predictions),
        ("--skip_save_eval_stats", statistics),
    ):
        assert main([*words, option]) == 0
        said = f"{stays} stays: it is of an earlier evaluation, not of this one."
        told = capsys.readouterr().err
        assert said in told
        assert told.count("stays:") == 1
    assert main([*words, "--skip_save_predictions", "--skip_save_eval_stats"]) == 0
    assert "stays:" not in capsys.readouterr().err


def test_an_evaluation_comes_beside_predictions(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`evaluate` after `predict`, both into the default folder, was refused."""
    place, few = tmp_path / "results", tmp_path / "few.csv"
    lines = (trained / "penguins.csv").read_text().splitlines(keepends=True)
    few.write_text("".join(lines[:50]))
    assert predict(trained, "--output_directory", str(place)) == 0
    before = (place / "predictions.parquet").read_bytes()
    words = ["evaluate", "-m", str(trained / "experiment_run"), "-od", str(place)]
    words += ["--dataset", str(few)]
    assert main(words) == 0
    assert "test_predictions.parquet, because predictions.parquet is" in capsys.readouterr().err
    own = [place / "test_predictions.parquet", place / "test_statistics.json"]
    found = {each.name for each in place.iterdir()} - {"digests.json"}
    assert found == {"predictions.parquet", *(each.name for each in own)}
    assert pq.read_table(own[0]).num_rows == 49
    assert main(words) == 2
    assert f"{own[0]} exists and was left as it is." in capsys.readouterr().err
    own[0].write_bytes(b"mine")
    assert main([*words, "--overwrite"]) == 0  # its own, again
    assert "stays:" not in capsys.readouterr().err, "the other one is of no evaluation"
    assert pq.read_table(own[0]).num_rows == 49
    assert (place / "predictions.parquet").read_bytes() == before
    own[1].unlink()
    assert main([*words, "--skip_save_eval_stats"]) == 2  # predictions alone are `predict`'s


def test_predictions_do_not_take_the_place_of_their_dataset(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trained / "penguins.csv"
    before = path.read_bytes()
    assert predict(trained, "--output_file", str(path), "--overwrite") == 2
    assert f"{path} is the dataset itself" in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.parametrize("dataset", ["", "part-*.parquet"])
def test_predictions_do_not_take_the_place_of_a_part_of_their_dataset(
    trained: Path, tmp_path: Path, dataset: str
) -> None:
    table, folder = pa_csv.read_csv(trained / "penguins.csv"), tmp_path / "parts"
    folder.mkdir()
    for part in range(2):
        pq.write_table(table.slice(100 * part, 100), folder / f"part-{part}.parquet")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UserError, match=r"part-1\.parquet is a file of the dataset"):
        distcore.predict(
            trained / "experiment_run",
            folder / dataset,
            output_file=folder / "part-1.parquet",
            overwrite=True,
            view="none",
        )
    assert before == {path: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_in_the_place_of_predictions_is_told_before_any_work(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "found.csv"
    path.mkdir()
    assert predict(trained, "--output_file", str(path), "--overwrite") == 2
    assert f"{path} is a folder. Give another --output_file" in capsys.readouterr().err


@pytest.mark.parametrize("dataset", ["parts", "parts/*.parquet"])
def test_predictions_do_not_become_rows_of_their_dataset(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str
) -> None:
    """A folder or pattern would have them as one more file from then on."""
    folder = tmp_path / "parts"
    folder.mkdir()
    pq.write_table(pa_csv.read_csv(trained / "penguins.csv"), folder / "a.parquet")
    monkeypatch.chdir(tmp_path)
    run = trained / "experiment_run"
    with pytest.raises(UserError, match=f"would be a file of the dataset {re.escape(dataset)}, "):
        distcore.predict(run, dataset, output_file="parts/b.parquet", view="none")
    assert [path.name for path in folder.iterdir()] == ["a.parquet"]
    distcore.predict(run, dataset, output_file="parts/b.csv", view="none")
    distcore.predict(run, "parts/a*.parquet", output_file="parts/b.parquet", view="none")


def test_a_run_leaves_no_rows_in_the_folder_that_it_reads(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa_csv.read_csv(trained / "penguins.csv"), tmp_path / "a.parquet")
    config = config_to_resume(None, trained / "experiment_run")
    monkeypatch.chdir(tmp_path)
    place = r"results/experiment_run/predictions\.parquet would be a file of the dataset \.,"
    with pytest.raises(UserError, match=place):
        distcore.experiment(config, dataset=".", view="none")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
    # Where another run lies already, this one is beside it.
    run = Path("results/experiment_run")
    run.mkdir(parents=True)
    shutil.copy("a.parquet", run / "predictions.parquet")
    with pytest.raises(UserError, match="results/experiment_run_1/predictions"):
        distcore.experiment(config, dataset="results/**/predictions.parquet", view="none")
    distcore.experiment(config, dataset=run, view="none", skip=["skip_save_report"])
    assert Path("results/experiment_run_1/predictions.parquet").exists()
    going_on = {"model_resume_path": "results/experiment_run_1", "view": "none"}
    with pytest.raises(UserError, match=r"outside of it, or --skip_save_predictions\."):
        distcore.experiment(dataset="results", **going_on)


def test_two_outputs_with_a_column_of_one_name_are_refused(tmp_path: Path) -> None:
    """`y` has a column for each class, `y_probabilities` one of its predictions."""
    table = pa.table({"x": range(60), "y": ["a", "predictions"] * 30, "z": ["u", "v", "w"] * 20})
    config = data.config(str(tmp_path / "cache")) | {
        "input_features": [{"name": "x", "type": "number"}],
        "output_features": [
            {"name": "y", "type": "category"},
            {"name": "y_probabilities", "column": "z", "type": "category"},
        ],
    }
    said = "'y' and 'y_probabilities' have .* of the same name, 'y_probabilities_predictions'"
    for command in (distcore.train, distcore.experiment):
        with pytest.raises(UserError, match=said):
            command(config, table, output_directory=tmp_path / "results", view="none")
    assert not (tmp_path / "results").exists()
    search = config | {
        "hyperopt": {
            "goal": "minimize",
            "parameters": {"trainer.learning_rate": {"space": "choice", "categories": [0.1, 0.2]}},
        }
    }
    with pytest.raises(UserError, match=said):
        distcore.hyperopt(search, table, output_directory=tmp_path / "results", view="none")


def test_nothing_is_overwritten(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "predictions.parquet"
    path.write_bytes(b"mine")
    assert predict(trained, "--output_directory", str(tmp_path)) == 2
    assert path.read_bytes() == b"mine"
    assert f"{path} exists and was left as it is." in capsys.readouterr().err
    assert predict(trained, "--output_directory", str(tmp_path), "--overwrite") == 0
    assert pq.read_table(path).num_rows == 344


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_replaced_if_that_is_asked_for_and_what_it_points_to_stays(
    there: bool, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = tmp_path / "predictions.parquet", tmp_path / "other"
    if there:
        other.write_bytes(b"mine")
    path.symlink_to(other)
    assert predict(trained, "--output_directory", str(tmp_path)) == 2
    said = "exists" if there else "is a link that leads nowhere"
    assert f"{path} {said} and was left as it is" in capsys.readouterr().err
    assert path.is_symlink()
    assert predict(trained, "--output_directory", str(tmp_path), "--overwrite") == 0
    assert not path.is_symlink()
    assert other.exists() == there
    assert not there or other.read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--output_file", "found.txt"), "name a file that ends in .csv or .parquet"),
        (("--keep", "islnd"), "there is no column 'islnd' (did you mean 'island'?)"),
        (("--keep", "species_predictions"), "the predictions have a column of that name"),
    ],
)
def test_what_cannot_be(
    trained: Path,
    tmp_path: Path,
    words: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert predict(trained, "--output_directory", str(tmp_path / "out"), *words) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_from_python(trained: Path, tmp_path: Path) -> None:
    arguments = {"output_file": tmp_path / "x.csv"}
    distcore.predict(trained / "experiment_run", trained / "penguins.csv", **arguments)
    with pytest.raises(UserError, match="--overwrite"):
        distcore.predict(trained / "experiment_run", trained / "penguins.csv", **arguments)


def test_a_stream_of_arrows_whose_rows_come_once(trained: Path, tmp_path: Path) -> None:
    """Its columns were asked for by reading it, and then it had no rows."""
    table = pa_csv.read_csv(trained / "penguins.csv")

    def stream() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=99))

    model = distcore.load(trained / "experiment_run")
    assert model.predict(stream()).equals(model.predict(table))
    assert model.evaluate(stream()) == model.evaluate(table)
    found = [
        distcore.predict(
            trained / "experiment_run", each, output_directory=tmp_path / name, keep=["island"]
        )
        for name, each in (("stream", stream()), ("table", table))
    ]
    assert pq.read_table(found[0]).equals(pq.read_table(found[1]))


class Place:
    """A path of a user's own class, which is shown as anything."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


def test_a_dataset_is_not_replaced_whatever_its_path_is(trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "predictions.parquet"
    pq.write_table(pa_csv.read_csv(trained / "penguins.csv"), path)
    asked = {"output_directory": Place(tmp_path), "overwrite": True}
    with pytest.raises(UserError, match=r"predictions\.parquet is the dataset itself"):
        distcore.predict(Place(trained / "experiment_run"), Place(path), **asked)
    folder = Place(tmp_path / "found" / "keys.csv")
    found = distcore.predict(
        trained / "experiment_run", dataset=Place(path), output_file=folder, keep=["island"]
    )
    assert found == tmp_path / "found" / "keys.csv"
    assert found.is_file()


class Computed:
    """A relation: its rows are computed each time, and come in another order."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self.columns = table, table.column_names

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self.table = self.table.take(list(range(self.table.num_rows))[::-1])
        return self.table.__arrow_c_stream__(requested_schema)


def test_keys_beside_the_predictions_of_rows_that_are_computed(
    trained: Path, tmp_path: Path
) -> None:
    """They were computed once for the keys and once for the predictions."""
    table = pa_csv.read_csv(trained / "penguins.csv")
    table = table.append_column("key", [[*range(table.num_rows)]])
    model, asked = trained / "experiment_run", {"keep": ["key"], "overwrite": True}
    found = distcore.predict(model, Computed(table), output_directory=tmp_path, **asked)
    rows = pq.read_table(found).sort_by("key")
    assert rows["key"].to_pylist() == table["key"].to_pylist()
    wanted = distcore.load(model).predict(table)
    assert rows["species_probability"].equals(wanted["species_probability"])


def test_keys_of_frames_with_columns_that_nobody_asks_for(trained: Path, tmp_path: Path) -> None:
    """All columns had to fit Arrow, and generators were used up by the look for their types."""
    frame = pa_csv.read_csv(trained / "penguins.csv").to_pandas()
    frame["junk"] = ["a", *range(len(frame) - 1)]
    streamed = {name: (each for each in values) for name, values in frame.items()}
    model = trained / "experiment_run"
    found = [
        distcore.predict(model, each, output_directory=tmp_path / name, keep=["island"])
        for name, each in (("frame", frame), ("streamed", streamed))
    ]
    assert pq.read_table(found[0])["island"].to_pylist() == frame["island"].to_list()
    assert pq.read_table(found[0]).equals(pq.read_table(found[1]))
    twice = frame.rename(columns={"junk": "island"})
    with pytest.raises(DataError, match="'island' occurs more than once"):
        distcore.predict(model, twice, output_directory=tmp_path / "twice", keep=["island"])
    with pytest.raises(DataError, match="did you mean 'island'"):
        distcore.predict(model, frame, output_directory=tmp_path / "none", keep=["islands"])


@pytest.mark.parametrize("size", ["8", 1.5, 0, -3])
def test_a_batch_size_that_is_no_number_of_rows(trained: Path, size: object) -> None:
    model = distcore.load(trained / "experiment_run")
    with pytest.raises(UserError, match="but a batch has at least one row"):
        model.predict(trained / "penguins.csv", batch_size=size)  # type: ignore[arg-type]


def test_scores_that_find_no_room_take_the_predictions_with_them(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stayed, and the next evaluation took them for those of another command."""
    asked = {"dataset": trained / "penguins.csv", "output_directory": tmp_path}

    def full(path: Path, content: Any) -> None:
        raise TrainingError(f"There is no room for {path.name}.")

    monkeypatch.setattr(results, "write_json", full)
    with pytest.raises(TrainingError, match=r"no room for test_statistics\.json"):
        distcore.evaluate(trained / "experiment_run", **asked)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    distcore.evaluate(trained / "experiment_run", **asked)
    names = {each.name for each in tmp_path.iterdir()}
    assert names == {"predictions.parquet", "test_statistics.json", "digests.json"}
