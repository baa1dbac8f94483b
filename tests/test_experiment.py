"""Experiments from end to end: what lies in the folder, what the flags and the Python calls
give, and who listens."""

import copy
import errno
import json
import pickle
import re
import shutil
import sys
from importlib import metadata

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import torch

import distcore
from distcore.cli.main import main
from distcore.workflow import skips, summary_of_test
from distcore_core.errors import UserError
from distcore_data.cache.use import begin_use

FILES = {
    "description.json",
    "summary.json",
    "training_log.jsonl",
    "ledger.jsonl",
    "receipt.json",
    "training_statistics.json",
    "test_statistics.json",
    "test_diagnostics.json",
    "digests.json",
    "predictions.parquet",
    "report.html",
    "model",
    "checkpoints",
}
CONFIG = {
    "input_features": [{"name": "age", "type": "number"}, {"name": "city", "type": "category"}],
    "output_features": [{"name": "bought", "type": "binary"}],
    "trainer": {"epochs": 1, "batch_size": 32},
    "backend": {"type": "local"},
}


def names(folder):
    return {path.name for path in folder.iterdir()}


def read(folder, name):
    return json.loads((folder / name).read_text())


@pytest.fixture
def frame(place):
    """The place's dataset as a table."""
    return pacsv.read_csv(place.folder / place.data)


# ------------------------------------------------------------------ the folder


def test_the_folder_of_an_experiment(place):
    done = place.good("experiment")
    assert done.out.splitlines()[-1] == str(place.results)
    assert re.search(r"^bought +roc_auc( +0\.\d+){3}$", done.out, re.MULTILINE)
    assert names(place.results) == FILES
    assert {"model.json", "weights.safetensors"} <= names(place.results / "model")
    scores = read(place.results, "test_statistics.json")["bought"]
    assert {"loss", "accuracy", "roc_auc", "precision", "recall", "specificity"} <= set(scores)
    curves = read(place.results, "training_statistics.json")
    assert len(curves["validation"]["bought"]["loss"]) == 1
    page = (place.results / "report.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert not re.search(r'(src|href)="https?://', page)


def test_another_place_or_other_weights_than_those_of_the_run_gone_on_with(place):
    place.good("train")
    run, model = place.results, place.results / "model"
    before = {path: path.stat().st_mtime_ns for path in place.folder.rglob("*")}
    there = ("--model_resume_path", run)
    elsewhere = place.folder / "elsewhere"
    said = place.refused("train", *there, "--output_directory", elsewhere)
    assert f"--output_directory {elsewhere} is not where {run} (--model_resume_path) lies" in said
    assert "Leave one of them out" in place.refused("train", *there, "--model_load_path", model)
    assert before == {path: path.stat().st_mtime_ns for path in place.folder.rglob("*")}
    for same in (run.parent, run, "results"):
        place.good("train", *there, "--output_directory", same)
    assert not elsewhere.exists()


def test_a_summary_lacks_no_part(place):
    """What fails of it costs a line of the log, and no run: so each part is asked for by name."""
    done = place.good("experiment")
    summary = read(place.results, "summary.json")
    assert "lacks its part" not in done.err
    assert {"headline", "columns", "importance", "worst", "scores"} <= summary.keys()
    assert [each["name"] for each in summary["columns"]] == ["age", "city", "bought"]
    for each in summary["columns"]:
        assert each["drift"].keys() == {"validation", "test"}
        assert all(0 <= share <= 1 for share in each["drift"].values())


def test_the_baseline_is_the_same_however_many_rows_of_it_lie_in_memory(place, monkeypatch):
    """Rows of a constant output were all there at once: 1 GB of 12,000 rows of 20,000 classes."""
    found = []
    for values in (1, summary_of_test.REPEATED_VALUES):
        monkeypatch.setattr(summary_of_test, "REPEATED_VALUES", values)
        place.good("experiment")
        found.append(read(place.results, "summary.json")["headline"])
        shutil.rmtree(place.results)
    few, all_at_once = found
    assert few["baseline"] == pytest.approx(all_at_once["baseline"])
    assert few | {"baseline": 0} == all_at_once | {"baseline": 0}


def test_what_the_description_says(place):
    place.good("experiment", "--random_seed", "11")
    found = read(place.results, "description.json")
    assert found["command"] == "experiment"
    assert found["random_seed"] == 11
    assert found["data"]["rows"].keys() == {"train", "validation", "test"}
    assert sum(found["data"]["rows"].values()) == 240
    assert found["data"]["dataset"] == str(place.folder / place.data)
    assert found["backend"]["name"] == "local"
    assert {"distcore-local", "distcore-parquet", "distcore-tabular"} <= {
        each["distribution"] for each in found["plugins"]
    }
    assert all(each["version"] for each in found["plugins"])
    assert found["config"]["trainer"]["batch_size"] == 32
    assert distcore.train(
        found["config"], dataset=place.folder / place.data
    ).directory  # it is a config again


def test_a_second_experiment_gets_a_number_and_the_first_stays_as_it_was(place):
    place.good("train")
    first = {name: digest for name, digest in place.listing().items() if "experiment_run" in name}
    assert place.good("train").out.strip() == f"{place.results}_1"
    assert place.good("train").out.strip() == f"{place.results}_2"
    assert {name: place.listing()[name] for name in first} == first
    place.good("train", "--experiment_name", "mine", "--model-name", "small")
    assert (place.folder / "results" / "mine_small" / "model").is_dir()


@pytest.mark.parametrize(
    "trainer",
    [
        "trainer: {epochs: %d}\nbackend: local\n",
        "backend: {type: local, trainer: {type: lightgbm, num_boost_round: %d}}\n",
    ],
    ids=["local", "lightgbm"],
)
def test_what_a_training_and_its_rounds_need_but_once_is_not_read_or_made_again(
    place, monkeypatch, trainer
):
    """Metadata of what is installed, and metrics: they took longer than all else of a small
    training."""
    from distcore_core.registry import index
    from distcore_tabular.binary import BinaryNetwork

    monkeypatch.setattr(index, "_state", len)  # others may be installed meanwhile
    asked, metrics = [], BinaryNetwork.metrics
    monkeypatch.setattr(
        BinaryNetwork, "metrics", lambda *given: asked.append("metrics") or metrics(*given)
    )
    config = (place.folder / place.config).read_text().partition("trainer:")[0]
    place.write(place.config, config + trainer % 1)
    place.good("train")
    first = asked.count("metrics")
    for what in ("distributions", "entry_points"):
        monkeypatch.setattr(metadata, what, lambda *_, what=what: asked.append(what))
    place.write(place.config, config + trainer % 5)
    place.good("train", "--experiment_name", "longer")
    assert asked == ["metrics"] * 2 * first
    told = read(place.results, "receipt.json")["distributions"]
    monkeypatch.undo()
    known = {each.metadata["Name"] for each in metadata.distributions()}
    assert set(told) == {name for name in known if re.fullmatch(r"distcore(-\w+)?", name)}


SKIPS = {
    "skip_save_training_description": {"description.json", "receipt.json"},
    "skip_save_training_statistics": {
        "training_statistics.json",
        "training_log.jsonl",
        "ledger.jsonl",
    },
    "skip_save_model": {"model"},
    "skip_save_progress": {"checkpoints"},
    "skip_save_predictions": {"predictions.parquet"},
    "skip_save_eval_stats": {"test_statistics.json", "test_diagnostics.json"},
    "skip_save_report": {"report.html", "summary.json"},
    "skip_save_log": set(),
}


@pytest.mark.parametrize("skip", SKIPS)
def test_the_help_of_a_skip_names_all_that_it_leaves_out(skip):
    assert all(each in skips.SKIPS[skip] for each in SKIPS[skip])


def test_a_folder_that_was_made_and_cannot_be_opened_is_an_error_and_not_another_name(
    place, monkeypatch, capsys
):
    """As under a mask that takes the right to read: every other name would go as this one."""

    def refused(folder, unknown):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("distcore.workflow.folders.folder_if_free", refused)
    assert main(place.words("experiment")) == 2
    told = capsys.readouterr().err
    assert re.search(r"cannot be written to .*experiment_run: Permission denied\. Give", told), told
    assert not (place.folder / "results").exists()


@pytest.mark.parametrize("skip", SKIPS)
def test_what_is_skipped_is_not_there(place, skip):
    place.good("experiment", f"--{skip}")
    assert names(place.results) == FILES - SKIPS[skip]


def test_all_that_can_be_skipped_at_once(place):
    done = place.good(
        "experiment",
        *(f"--{skip.replace('_', '-')}" for skip in SKIPS),
        "--skip_save_processed_input",
    )
    assert "roc_auc" in done.out
    assert not any(path.is_file() for path in (place.folder / "results").rglob("*"))


def test_a_cache_that_is_not_to_be_kept_is_removed_and_one_that_was_there_stays(place):
    place.good("train", "--skip_save_processed_input")
    assert not (place.folder / ".distcore_cache").exists()
    place.good("preprocess")
    before = place.listing()
    for seed in (42, 7):  # the cache that is there, and one beside it
        place.good(
            *("train", "--skip_save_processed_input", "--random_seed", seed),
            *("--output_directory", place.folder / "other"),
        )
    assert {
        name: digest for name, digest in place.listing().items() if not name.startswith("other")
    } == before


@pytest.mark.parametrize("who", ["another run", "rank 0"])
def test_a_cache_that_others_read_stays(place, monkeypatch, who):
    """It was gone under a run that had found it meanwhile; and under rank 0, if another rank of
    torchrun had built it."""
    uses = []
    if who == "rank 0":
        monkeypatch.setattr("distcore.workflow.run.is_other_rank", lambda: True)
    else:
        monkeypatch.setattr(
            "distcore.workflow.run.tell_constant_targets",
            lambda session, cache: uses.append(begin_use(cache)),
        )
    said = place.good("train", "--skip_save_processed_input").err
    assert ("stays: used by" in said) == (who == "another run")
    assert list((place.folder / ".distcore_cache").glob("*/manifest.json"))
    for use in uses:
        use.close()


# ------------------------------------------------------------------ predictions


def test_predictions_of_the_test_split_are_in_the_order_of_its_rows(place, frame):
    """And each says of which row it is: to join them, the split had to be in the data."""
    dice = np.random.default_rng(0)
    split = dice.choice(3, frame.num_rows, p=[0.6, 0.1, 0.3])
    data = frame.append_column("split", pa.array(split))
    outcome = distcore.experiment(
        {**CONFIG, "preprocessing": {"split": {"type": "fixed"}}}, dataset=data
    )
    rows = data.filter(pa.array(split == 2))
    found = pq.read_table(outcome.predictions)
    assert found.column("row").to_pylist() == np.flatnonzero(split == 2).tolist()
    found = found.drop_columns("row")
    again = distcore.load(outcome.directory).predict(rows)
    assert found.schema.equals(again.schema)
    probability = "bought_probabilities_yes"
    np.testing.assert_allclose(found.column(probability), again.column(probability), rtol=1e-5)
    assert (
        found.column("bought_predictions").to_pylist()
        == again.column("bought_predictions").to_pylist()
    )
    right = [
        a == b
        for a, b in zip(
            found.column("bought_predictions").to_pylist(),
            rows.column("bought").to_pylist(),
            strict=True,
        )
    ]
    assert outcome.test_statistics["bought"]["accuracy"] == pytest.approx(np.mean(right))


def test_a_model_says_in_a_line_what_it_is(trained):
    """It showed its whole manifest, vocabularies and all."""
    model = distcore.load(trained)
    assert repr(model) == f"<LoadedModel of {model.place}: predicts bought>"
    for travel in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=rf"Load it where .* distcore\.load\('{model.place}'\)"):
            travel(model)


def test_a_model_says_which_columns_it_needs(place, frame):
    """By the names that the data has, whatever the features are called."""
    features = [
        {"name": "years", "column": "age", "type": "number"},
        {"name": "decade", "column": "age", "type": "number"},
        {"name": "city", "type": "category"},
    ]
    outcome = distcore.train({**CONFIG, "input_features": features}, dataset=frame)
    model = distcore.load(outcome.model)
    assert model.columns == {"age": "number", "city": "category"}
    assert model.predict(frame.select(list(model.columns))).num_rows == frame.num_rows


def test_predictions_do_not_depend_on_batches_order_or_company(trained, frame):
    """Each row is predicted for itself, in the order of the rows."""
    model = distcore.load(trained)
    whole = model.predict(frame)
    assert whole.num_rows == frame.num_rows
    probability = np.array(whole.column("bought_probabilities_yes"))
    for size in (1, 7, 100_000):
        np.testing.assert_allclose(
            model.predict(frame, batch_size=size).column("bought_probabilities_yes"),
            probability,
            rtol=1e-5,
        )
    order = np.random.default_rng(1).permutation(frame.num_rows)
    np.testing.assert_allclose(
        model.predict(frame.take(order)).column("bought_probabilities_yes"),
        probability[order],
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        model.predict(frame.slice(100, 1)).column("bought_probabilities_yes"),
        probability[100:101],
        rtol=1e-5,
    )


def test_predict_and_evaluate_from_the_command_line(place, trained):
    done = place.good("predict", "--model_path", trained, "--batch_size", "50")
    path = place.folder / "results" / "predictions.parquet"
    assert done.out.strip() == str(path)
    assert pq.read_table(path).num_rows == 240
    assert names(place.folder / "results") == {"predictions.parquet"}
    done = place.good(
        "test",
        "--model_path",
        trained / "model",
        "--skip_save_predictions",
        "--output_directory",
        place.folder / "scores",
    )
    assert names(place.folder / "scores") == {"test_statistics.json", "digests.json"}
    assert read(place.folder / "scores", "test_statistics.json")["bought"]["loss"] > 0
    assert "accuracy" in done.out


def test_evaluating_the_test_rows_gives_the_test_statistics(place, frame):
    split = np.arange(frame.num_rows) // 5 % 3
    data = frame.append_column("split", pa.array(split))
    outcome = distcore.experiment(
        {**CONFIG, "preprocessing": {"split": {"type": "fixed"}}}, dataset=data
    )
    rows = data.filter(pa.array(split == 2))
    scores = distcore.evaluate(outcome.model, rows, output_directory=place.folder / "again")
    assert scores["bought"] == pytest.approx(outcome.test_statistics["bought"], rel=1e-5)


# ------------------------------------------------------------------ data

FRAMES = {
    "pyarrow": lambda table: table,
    "pandas": pa.Table.to_pandas,
    "polars": pl.from_arrow,
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_every_library(place, frame, kind):
    data = FRAMES[kind](frame)
    config = {**CONFIG, "backend": {"type": "local", "cache_dir": str(place.folder / "cache")}}
    outcome = distcore.experiment(config, dataset=data)
    assert names(outcome.directory) == FILES
    assert "in memory" in read(outcome.directory, "description.json")["data"]["dataset"]
    predicted = distcore.load(outcome.directory).predict(data)
    assert predicted.num_rows == frame.num_rows
    np.testing.assert_allclose(
        predicted.column("bought_probabilities_yes"),
        distcore.load(outcome.directory).predict(frame).column("bought_probabilities_yes"),
    )


DUCKDB = """
import distcore, duckdb, json, sys
relation = duckdb.sql(f"select * from '{sys.argv[1]}'")
cache_dir = sys.argv[2]
config = {**json.loads(sys.argv[3]), "backend": {"type": "local", "cache_dir": cache_dir}}
outcome = distcore.experiment(config, dataset=relation)
print(distcore.load(outcome.directory).predict(relation).num_rows)
"""


@pytest.mark.system
def test_a_relation_of_duckdb(place):
    """In a process of its own: beside torch, duckdb ends with pages about what it calls leaks."""
    words = (str(place.folder / place.data), str(place.folder / "cache"), json.dumps(CONFIG))
    done = place.finish(place.python("-c", DUCKDB, *words))
    assert done.code == 0, done.err
    assert done.out.strip() == "240"


def test_a_training_validation_and_test_set(place, frame):
    parts = {
        "training_set": frame.slice(0, 150),
        "validation_set": frame.slice(150, 40),
        "test_set": frame.slice(190),
    }
    words = []
    for name, part in parts.items():
        path = place.folder / f"{name}.csv"
        pacsv.write_csv(part, path)
        words += [f"--{name}", path]
    place.good("experiment", *words)
    assert read(place.results, "description.json")["data"]["rows"] == {
        "train": 150,
        "validation": 40,
        "test": 50,
    }
    page = (place.results / "report.html").read_text()
    assert "Row numbers count on from set to set: training, validation, test" in page
    found = pq.read_table(place.results / "predictions.parquet")
    assert found.column("row").to_pylist() == [*range(190, 240)]  # one set after another
    np.testing.assert_allclose(
        found.column("bought_probabilities_yes"),
        distcore.load(place.results).predict(parts["test_set"]).column("bought_probabilities_yes"),
        rtol=1e-5,
    )


def test_a_training_set_alone(place):
    """No validation: the last weights are the best; no test rows: nothing to evaluate."""
    done = place.good("experiment", "--training_set", place.folder / place.data)
    assert read(place.results, "description.json")["data"]["rows"] == {
        "train": 240,
        "validation": 0,
        "test": 0,
    }
    found = pq.read_table(place.results / "predictions.parquet")
    assert (found.num_rows, found.schema.names[0]) == (0, "row")
    assert "bought" in done.out or done.code == 0


def test_urls(place, frame):
    """Data by an fsspec URL; the cache goes to a folder of the user's."""
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://shop/data.csv", "wb") as file:
        file.write((place.folder / place.data).read_bytes())
    with fsspec.open("memory://shop/data.parquet", "wb") as file:
        pq.write_table(frame, file)
    config = {**CONFIG, "backend": {"type": "local", "cache_dir": str(place.folder / "cache")}}
    for name in ("data.csv", "data.parquet"):
        outcome = distcore.experiment(config, dataset=f"memory://shop/{name}")
        assert (
            read(outcome.directory, "description.json")["data"]["dataset"]
            == f"memory://shop/{name}"
        )
    assert distcore.load(outcome.directory).predict("memory://shop/data.csv").num_rows == 240
    assert not list((place.folder / "tmp").glob("distcore*"))


# ------------------------------------------------------------------ secrets


CANARY = "c4nary-s3cret"


@pytest.mark.parametrize("how", ["in the config", "in a file"])
def test_credentials_are_written_and_said_nowhere(place, how):
    """Neither in the cache, nor in results, nor on the terminal, nor in the model; also when the
    run fails."""
    credentials = f'{{"key": "{CANARY}", "client_kwargs": {{"password": "{CANARY}2"}}}}'
    (place.folder.parent / "creds.json").write_text(credentials)
    said = credentials if how == "in the config" else str(place.folder.parent / "creds.json")
    text = (place.folder / place.config).read_text()
    config = place.folder.parent / "config.yaml"
    config.write_text(
        text.replace("backend: local", f"backend: {{type: local, cache_credentials: {said}}}")
    )
    done = place.good("experiment", "--config", config, "--logging_level", "debug")
    outputs = [done.out + done.err]
    done = place.good("train", "--config", config, "--model_resume_path", place.results)
    outputs.append(done.out + done.err)
    place.write("bad.csv", "age,city,bought\nx,Rome,yes\n")
    done = place.run("train", "--config", config, "--dataset", place.folder / "bad.csv")
    assert done.code == 2
    outputs.append(done.out + done.err)
    config.write_text(config.read_text().replace("epochs: 1", "epochs: 0"))
    done = place.run("train", "--config", config)
    assert done.code == 2
    outputs.append(done.out + done.err)
    assert not any(CANARY in each for each in outputs)
    for path in place.folder.rglob("*"):
        assert path.is_dir() or CANARY.encode() not in path.read_bytes(), path


def test_a_password_in_the_url_of_the_data_is_said_nowhere(place):
    done = place.run("train", "--dataset", f"ftp://me:{CANARY}@127.0.0.1:9/data.csv")
    assert done.code in (1, 2)
    assert "127.0.0.1" in done.err
    assert CANARY not in done.out + done.err


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.8, 1.0])
def test_the_confusion_matrix_counts_what_is_predicted(place, frame, threshold):
    """A binary output's threshold holds for the report as for metrics and predictions."""
    output = {"name": "bought", "type": "binary", "threshold": threshold}
    outcome = distcore.experiment(
        {**CONFIG, "output_features": [output]}, frame, output_directory=place.folder / "out"
    )
    drawn = read(outcome.directory, "test_diagnostics.json")["bought"]
    (right_no, false_yes), (false_no, right_yes) = drawn["confusion"]
    told = pq.read_table(outcome.predictions)["bought_predictions"].to_pylist()
    assert false_yes + right_yes == sum(drawn["labels"].index(str(each)) for each in told)
    rows = right_no + false_yes + false_no + right_yes
    found = outcome.test_statistics["bought"]
    assert found["accuracy"] == pytest.approx((right_no + right_yes) / rows)
    assert found["recall"] == pytest.approx(right_yes / (false_no + right_yes))


def test_names_from_the_data_command_no_terminal(place, capsys, monkeypatch):
    """They may be another's: an escape sequence in a column's name would colour, clear or retitle
    the terminal of whoever trains on the data, or lists the runs."""
    monkeypatch.chdir(place.folder)
    name, columns = "y\x1b[31m\x1b]0;mine\x07", {"x\x1b[1m": [float(at) for at in range(60)]}
    columns |= {name: ["a\x1b[2Jb" if at % 3 else "over\r\ttext" for at in range(60)]}
    pq.write_table(pa.table(columns), "x.parquet")
    features = [{"name": "x\x1b[1m", "type": "number"}, {"name": name, "type": "category"}]
    given = {"input_features": features[:1], "output_features": features[1:]}
    (place.folder / "x.json").write_text(json.dumps({**given, "trainer": {"epochs": 1}}))
    of_it = ("--config", "x.json", "--dataset", "x.parquet")
    both = ("results/experiment_run", "results/experiment_run_1")
    capsys.readouterr()
    for words, code in (
        (("plan", *of_it), 0),
        (("experiment", *of_it), 0),
        (("experiment", *of_it, "--random_seed", "7"), 0),
        (("runs",), 0),
        (("compare", *both), 0),
        (("diff", *both), 1),
        (("init", "--dataset", "x.parquet", "--target", "\x1b[5m"), 2),
    ):
        assert main([*words]) == code
        said = capsys.readouterr()
        assert not {"\x1b", "\x07", "\r"} & {*said.out, *said.err}, words
        if words[0] in ("experiment", "runs", "compare"):
            assert "y\\x1b[31m\\x1b]0;mine\\x07" in said.out


# ------------------------------------------------------------------ a run that is gone on with


def test_what_told_of_the_model_before_goes_with_it(place):
    """`train` makes no scores of the test split: those of the former model would be told as its
    successor's, by `runs`, `compare` and the report."""
    place.good("experiment")
    before = read(place.results, "test_statistics.json")
    again = ("train", "--model_resume_path", place.results, "--config", place.folder / place.config)
    place.good(*again)
    assert read(place.results, "test_statistics.json") == before, "the model is the same"
    assert (place.results / "predictions.parquet").exists()
    done = place.good(*again, "--set", "trainer.epochs=3", "--skip_save_report")
    assert not {
        *("test_statistics.json", "test_diagnostics.json", "predictions.parquet"),
        *("report.html", "summary.json"),
    } & names(place.results)
    assert "told of the model before: predictions.parquet, report.html, summary" in done.err
    assert main(["verify", str(place.results)]) == 0


def test_an_experiment_that_is_gone_on_with_tells_of_its_own_model(place):
    place.good("experiment")
    before = read(place.results, "test_statistics.json")
    again = ("--model_resume_path", place.results, "--config", place.folder / place.config)
    place.good("experiment", *again, "--set", "trainer.epochs=3", "--skip_save_predictions")
    assert read(place.results, "test_statistics.json") != before
    assert "predictions.parquet" not in names(place.results)
    assert {"report.html", "receipt.json"} <= names(place.results)
    place.good("train", *again, "--set", "trainer.epochs=4", "--skip_save_training_description")
    assert "receipt.json" not in names(place.results), "that told of the model before"


def test_a_run_without_its_description_is_gone_on_with_by_its_config(place):
    place.good("train", "--skip_save_training_description")
    assert "description.json" not in names(place.results)
    words = ["train", "--dataset", str(place.folder / place.data), "--model_resume_path"]
    assert main([*words, str(place.results)]) == 2
    told = place.capsys.readouterr().err
    assert "has no description.json" in told
    assert "--config" in told
    again = ("--model_resume_path", place.results, "--config", place.folder / place.config)
    done = place.good("train", *again, "--set", "trainer.epochs=3")
    assert "Going on after step" in done.err
    assert "description.json" in names(place.results)
    (place.folder / "empty").mkdir()
    message = place.refused("train", "--model_resume_path", place.folder / "empty")
    assert "holds no run to go on with: there is no description.json and no checkpoints/" in message


# ------------------------------------------------------------------ who listens

LISTENER = """
import errno
import json
import pickle
from pathlib import Path
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)

def note(**what):
    with open("heard.jsonl", "a") as file:
        file.write(json.dumps(what, default=str) + "\\n")

class Notes:
    @hookimpl
    def run_started(self, command, config, directory):
        note(event="run_started", command=command, directory=directory)

    @hookimpl
    def cache_written(self, key, directory, rows, seconds):
        note(event="cache_written", rows=dict(rows))

    @hookimpl
    def epoch_finished(self, epoch, step, metrics):
        note(event="epoch_finished", epoch=epoch, step=step, splits=sorted(metrics))

    @hookimpl
    def checkpoint_saved(self, step, directory):
        note(event="checkpoint_saved", step=step, there=Path(directory).is_dir())

    @hookimpl
    def predictions_written(self, path, rows):
        note(event="predictions_written", rows=rows, there=Path(path).is_file())

    @hookimpl
    def results_written(self, command, directory):
        note(event="results_written", there=(Path(directory) / "test_statistics.json").is_file())

    @hookimpl
    def run_finished(self, command, directory, error):
        note(event="run_finished", error=type(error).__name__ if error else None)

@hookimpl
def distcore_make_extension(name, options):
    if name == "notes":
        return Notes()
"""


@pytest.fixture
def listened(place, distribution, monkeypatch):
    """Runs a command where the extension `notes` is installed; gives what it heard."""
    site = place.folder / "site"
    distribution(site, "distcore-notes", LISTENER, kind="extensions", entry="notes")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    text = (place.folder / place.config).read_text().replace("epochs: 1", "epochs: 2")
    place.write(place.config, text + "extensions: [notes]\n")

    def run(*words):
        done = place.run(*words)
        path = place.folder / "heard.jsonl"
        return done, [
            json.loads(line) for line in path.read_text().splitlines()
        ] if path.exists() else []

    yield run
    sys.modules.pop("distcore_notes", None)


def test_an_extension_hears_an_experiment_in_order(listened, place):
    done, heard = listened("experiment")
    assert done.code == 0, done.err
    rounds = [each for each in heard if each["event"] != "checkpoint_saved"]
    assert [each["event"] for each in rounds] == [
        "cache_written",
        "run_started",
        *["epoch_finished"] * 2,
        "predictions_written",
        "results_written",
        "run_finished",
    ]
    assert all(each.get("there", True) for each in heard)
    assert heard[1]["directory"] == str(place.results)
    for event in ("epoch_finished", "checkpoint_saved"):
        assert [each["step"] for each in heard if each["event"] == event] == [6, 12]
    names = [each["event"] for each in heard]
    assert names.index("run_started") < names.index("checkpoint_saved")
    assert "checkpoint_saved" not in names[names.index("predictions_written") :]
    assert heard[-1]["error"] is None


def test_without_the_reports_plugin_a_run_has_no_report_and_no_other_trouble(place, monkeypatch):
    monkeypatch.setenv("DISTCORE_BLOCK", "distcore-report")
    done = place.run("experiment")
    assert (done.code, "report" in done.err) == (0, False), done.err
    assert (place.results / "test_statistics.json").exists()
    assert not (place.results / "report.html").exists()


def test_what_an_extension_writes_when_results_are_whole_is_in_the_report(
    place, distribution, monkeypatch
):
    site = place.folder / "site"
    source = """
    from distcore_core.hooks import hookimpl
    DISTCORE_API = (1, 0)
    class Audit:
        file, order = "audit.json", 50
        def draw(self, content):
            yield f"<h2>Audit of {content['command']}</h2>"
        @hookimpl
        def results_written(self, command, directory):
            from distcore_core.io.atomic import write_file
            from distcore_data.seals import sealed
            write_file(directory / self.file, sealed({"command": command}))
    @hookimpl
    def distcore_make_extension(name):
        return Audit() if name == "audit" else None
    @hookimpl
    def distcore_make_member(kind, name):
        return Audit() if (kind, name) == ("report_sections", "audit") else None
    """
    offers = {"extensions": ["audit"], "report_sections": ["audit"]}
    distribution(site, "audit-it", source, offers=offers)
    monkeypatch.syspath_prepend(site)
    text = (place.folder / place.config).read_text()
    place.write(place.config, text + "extensions: [audit]\n")
    place.good("experiment")
    assert "<h2>Audit of experiment</h2>" in (place.results / "report.html").read_text()


def test_an_extension_hears_how_a_run_failed(listened, place):
    place.write(place.data, "age,city,bought\nx,Rome,yes\n")
    done, heard = listened("train")
    assert done.code == 2
    assert heard[-1] == {"event": "run_finished", "error": "DataError"}


def test_nobody_listens_where_no_log_is_to_be_saved(listened):
    done, heard = listened("train", "--skip_save_log")
    assert (done.code, heard) == (0, [])


@pytest.mark.system
def test_an_extension_hears_the_ranks_of_ddp(listened, place):
    text = (place.folder / place.config).read_text()
    place.write(
        place.config,
        text.replace(
            "backend: local", "backend: {type: local, trainer: {type: ddp, num_workers: 2}}"
        ),
    )
    done, heard = listened("train")
    assert done.code == 0, done.err
    assert [each["event"] for each in heard].count("epoch_finished") == 2
    assert [each["event"] for each in heard].count("checkpoint_saved") == 2


# ------------------------------------------------------------------ the rest of the command line


def test_starting_from_another_models_weights(place, trained):
    """With a learning rate of 0, the weights that come out are the ones that went in."""
    from safetensors.numpy import load_file

    place.write(
        place.config,
        (place.folder / place.config)
        .read_text()
        .replace("epochs: 1", "epochs: 1, learning_rate: 0"),
    )
    place.good("train", "--model_load_path", trained)
    ours, theirs = (
        load_file(folder / "model" / "weights.safetensors") for folder in (place.results, trained)
    )
    assert set(ours) == set(theirs)
    for name, each in ours.items():
        np.testing.assert_array_equal(each, theirs[name])


def test_weights_that_know_values_by_other_codes_are_told(place):
    """Codes go by how often a value occurs, so other rows may swap what the weights know."""
    config = """
        input_features: [{name: x, type: number}]
        output_features: [{name: y, type: category}]
        trainer: {epochs: 1}
    """

    def rows(*classes):
        drawn = "".join(f"{row % 7},{classes[row % len(classes)]}\n" for row in range(60))
        return place.write(f"{''.join(classes)}.csv", f"x,y\n{drawn}")

    def begun_on(data):
        given = ("--config_str", config, "--dataset", data, "--model_load_path", place.results)
        return place.run("train", *given)

    place.good("train", "--config_str", config, "--dataset", rows("a", "a", "b"))
    swapped, new, same = (begun_on(rows(*each)) for each in ("abb", "acc", "aaab"))
    assert re.search(r"know values of 'y' by other codes .* 'b' is here what 'a' was", swapped.err)
    assert "'c' is here what 'a' was there" in new.err
    assert "other codes" not in same.err
    assert [each.code for each in (swapped, new, same)] == [0, 0, 0]
    assert "other codes" not in begun_on(rows("d", "d", "e")).err, "nothing was known of them"
    more = begun_on(rows("a", "a", "b", "c"))
    assert more.code == 2
    assert "each class, category and word has weights of its own" in more.err


@pytest.mark.parametrize("role", ["input", "binary"])
def test_weights_that_know_inputs_and_truths_by_other_codes_are_told(place, role):
    """<UNK> is no value that the weights know."""
    given = {"input": ("category", "number"), "binary": ("number", "binary")}[role]
    config = "input_features: [{{name: x, type: {}}}]\noutput_features: [{{name: y, type: {}}}]\n"
    config = config.format(*given) + "trainer: {epochs: 1}\n"

    def train(values, *start):
        rows = [f"{values[row % 3]},{row}" for row in range(60)]
        if role == "binary":
            rows = [",".join(reversed(row.split(","))) for row in rows]
        data = place.write(f"{values}.csv", "\n".join(["x,y", *rows, ""]))
        return place.good("train", "--config_str", config, "--dataset", data, *start)

    train("aab")
    start = ("--model_load_path", place.results)
    told = train("bba" if role == "input" else "bbc", *start).err
    assert re.search("'[bc]' is here what '[ab]' was", told)
    assert "other codes" not in train("ccd", *start).err


def test_weights_that_know_numbers_as_truths_by_other_codes_are_told(place):
    """What was true, 1, is here the smaller of 1 and 2, and so false."""
    config = """
        input_features: [{name: x, type: number}]
        output_features: [{name: y, type: binary}]
        trainer: {epochs: 1}
    """

    def train(values, *start):
        rows = [f"{row},{values[row % 2]}" for row in range(60)]
        data = place.write(f"{'_'.join(values)}.csv", "\n".join(["x,y", *rows, ""]))
        return place.good("train", "--config_str", config, "--dataset", data, *start).err

    train(("0", "1"))
    start = ("--model_load_path", place.results)
    assert re.search("'1' is here what '0' was", train(("1", "2"), *start))
    assert "other codes" not in train(("0.0", "1.0"), *start)
    assert "other codes" not in train(("7", "8"), *start)


def test_weights_of_other_versions_of_what_encodes_are_told(place, monkeypatch):
    place.good("train")
    monkeypatch.setattr("distcore_tabular.plugin.DATA_VERSION", 99)
    told = place.good("train", "--model_load_path", place.results).err
    assert re.search(r"were trained on what distcore-tabular \S+ \(data version \d+\) enc", told)
    assert re.search(r"and distcore-tabular \S+ \(data version 99\) encodes otherwise", told)
    refused = place.run("predict", "--model_path", place.results)
    assert refused.code != 0
    # No other release would do: this is the one that it was trained with.
    assert refused.err.rstrip().endswith("(data version 99) encodes otherwise. Train again.")


def test_the_config_as_text_and_flags_with_dashes(place):
    text = (place.folder / place.config).read_text()
    place.good(
        "train",
        "--config_str",
        text,
        "--model-name",
        "text",
        "--random-seed",
        "3",
        "--logging-level",
        "error",
    )
    assert (place.folder / "results" / "experiment_text" / "model").is_dir()


def test_a_report_can_be_made_again(place, trained):
    shutil.copytree(trained, place.results)
    (place.results / "report.html").unlink()
    assert main(["report", str(place.results)]) == 0
    assert (place.results / "report.html").read_bytes() == (trained / "report.html").read_bytes()


def test_nothing_changes_where_a_plan_is_made(place):
    before = place.listing()
    place.capsys.readouterr()
    for more in ([], ["--json"]):
        code = main(
            [
                "plan",
                "--config",
                str(place.folder / place.config),
                "--dataset",
                str(place.folder / place.data),
                *more,
            ]
        )
        said = place.capsys.readouterr()
        assert code == 0, said.err
        assert "local" in said.out
    assert json.loads(said.out)
    assert place.listing() == before


@pytest.mark.system
def test_a_config_that_init_writes_trains(place):
    words = [
        "init",
        "--dataset",
        str(place.folder / place.data),
        "--target",
        "bought",
        "--output",
        str(place.folder / "first.yaml"),
    ]
    assert main(words) == 0
    place.good("train", "--config", place.folder / "first.yaml")
    assert main(words) == 2  # and is never overwritten


class Net(torch.nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(1, width), torch.nn.Linear(width, 1))

    def forward(self, batch):
        return self.layers(batch["age"][:, None] / 50)


def test_a_model_given_from_python(frame):
    """A class, or an instance whose weights are started from."""
    torch.manual_seed(0)
    net = Net()
    config = {**CONFIG, "trainer": {"epochs": 1, "learning_rate": 0}}
    outcome = distcore.train(config, dataset=frame, model=net)
    model = distcore.load(outcome.directory, trust=True)
    age = torch.tensor(frame.column("age").to_numpy(), dtype=torch.float32)
    metadata = model.features.metadata["age"]
    with torch.no_grad():
        expected = torch.sigmoid(net({"age": (age - metadata["mean"]) / metadata["std"]})).flatten()
    np.testing.assert_allclose(
        model.predict(frame).column("bought_probabilities_yes"), expected, rtol=1e-4
    )
    with pytest.raises(UserError, match="--trust"):
        distcore.load(outcome.directory)
    assert distcore.train(
        config, dataset=frame, model=Net, skip={"skip_save_model"}
    ).training_statistics
