"""summary.json: what it says of the best round, and what it looks at for that."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from tests.conftest import CONFIG

import distcore
from distcore.config import load_config
from distcore.workflow import drift, summary_of_test, worst_rows
from distcore.workflow.summary import _best_place, summary_of, users_yaml
from distcore.workflow.worst_rows import Worst
from distcore_core.contracts import TrainResult
from distcore_core.errors import UserError
from distcore_core.progress import Progress, Round
from distcore_data.cache import open_cache
from distcore_torch import packing, prediction
from distcore_torch.training import scores


def test_the_best_round_is_whole_if_the_trainer_s_result_is_not(tmp_path):
    """The trainers of the documents said {"epoch", "step"}, and the report of their runs was made
    without a headline."""
    session = session_after()
    told = {"epoch": 1, "step": 7}
    trained = TrainResult(model=tmp_path, statistics={}, best=told, steps=7, epochs=1.0)
    expected = {**told, "feature": "y", "metric": "loss", "value": 0.5, "evaluation": 1}
    assert summary_of(session, trained)["best"] == expected
    assert summary_of(session, trained)["counted"] == "evaluation"
    session.progress.tell(replace(session.progress.rounds[-1], unit="round"))
    assert summary_of(session, trained)["counted"] == "round"


def session_after(**told):
    """A session whose training told one round."""
    progress = Progress()
    first = {
        "evaluation": 1,
        "epoch": 1.0,
        "epochs": 1.0,
        "step": 7,
        "metrics": {"validation": {"y": {"loss": 0.5}}},
        "split": "validation",
        "feature": "y",
        "metric": "loss",
        "value": 0.5,
        "best": 0.5,
        "best_evaluation": 1,
        "patience_left": None,
        "seconds": 0.1,
    }
    progress.tell(Round(**{**first, **told}))
    return SimpleNamespace(
        progress=progress,
        command="train",
        backend_name="local",
        directory=None,
        config=SimpleNamespace(source="", backend=SimpleNamespace(cache_credentials=None)),
    )


@pytest.mark.parametrize(
    ("told", "loss"),
    [
        ({"evaluation": 20, "scored": 7, "best_evaluation": 7}, 0.2),  # trees
        ({"evaluation": 20, "best_evaluation": 20}, 0.2),  # trees, the last round is the best
        ({"evaluation": 20, "best_evaluation": 7}, 0.3),  # trees of an older log
        ({"evaluation": 3, "best_evaluation": 1}, 0.3),  # a network: the first of equals
        ({"evaluation": 3, "best": None, "best_evaluation": None}, 0.3),
    ],
)
def test_of_rounds_with_one_score_the_summary_tells_that_of_the_model(tmp_path, told, loss):
    """Trees were told with the loss of an evaluation before, where its accuracy was the same."""
    curves = {"accuracy": [0.95, 0.94, 0.95], "loss": [0.3, 0.5, 0.2], "none": []}
    best = {"epoch": 7, "step": 7, "value": 0.95, "metric": "accuracy", "feature": "y"}
    statistics = {"validation": {"y": curves}}
    trained = TrainResult(model=tmp_path, statistics=statistics, best=best, steps=20, epochs=20.0)
    scores = summary_of(session_after(metric="accuracy", **told), trained)["scores"]
    assert scores == {"y": {"accuracy": {"validation": 0.95}, "loss": {"validation": loss}}}


def test_without_validation_rows_the_scores_are_those_of_the_last_round():
    """Also where the loss of an earlier one was the same."""
    curves = {"y": {"loss": [0.5, 0.4, 0.5], "accuracy": [0.6, 0.7, 0.8]}}
    best = {"feature": "y", "metric": "loss", "value": 0.5}
    assert [_best_place(judged, best, 3) for judged in ({}, curves)] == [2, 0]


@pytest.mark.parametrize(
    ("split", "best_evaluation", "accuracy"),
    [
        ("training", None, 0.8),
        ("training", 1, 0.6),  # a plugin's trainer that picks its best there
        ("validation", 1, 0.8),
    ],
)
def test_scores_are_of_the_round_that_the_trainer_says_is_its_best(
    tmp_path, split, best_evaluation, accuracy
):
    """Those of the last round stood beside a best of the first."""
    curves = {"y": {"loss": [0.5, 0.4, 0.5], "accuracy": [0.6, 0.7, 0.8]}}
    best = {"epoch": 1, "step": 7, "feature": "y", "metric": "loss", "value": 0.5}
    statistics = {"training": curves}
    trained = TrainResult(model=tmp_path, statistics=statistics, best=best, steps=3, epochs=3.0)
    told = {"evaluation": 3, "split": split, "best_evaluation": best_evaluation}
    scores = summary_of(session_after(**told), trained)["scores"]
    assert scores["y"]["accuracy"] == {"training": accuracy}


def test_a_run_gone_on_with_after_its_last_round_has_the_summary_of_one_that_was_not(place):
    """One that is killed while its results are written: the report had no best evaluation."""
    place.good("experiment")
    path = place.results / "summary.json"
    before = json.loads(path.read_text())
    place.good("experiment", "--model_resume_path", place.results)
    after = json.loads(path.read_text())
    assert before["evaluations"] == before["best"]["evaluation"] == 1
    assert [after[name] for name in ("best", "evaluations", "epochs")] == [
        before[name] for name in ("best", "evaluations", "epochs")
    ]
    assert (before["resumed"], after["resumed"]) == (False, True)
    page = (place.results / "report.html").read_text()
    assert "on backend local, since it was resumed</small>" in page
    assert "these are the stages of its last start" in page


@pytest.mark.parametrize(("metric", "higher"), [("loss", False), ("r2", True)])
def test_headline_and_importance_score_and_read_the_main_output_alone(
    tmp_path, monkeypatch, metric, higher
):
    """Of 80 outputs and 40 inputs they took half of an experiment, and the targets of all outputs
    were read once for each."""
    scored: list[str] = []
    read: list[str] = []
    headline, importance, pack = (
        summary_of_test._headline,
        summary_of_test._importance,
        packing.pack,
    )

    class Counted(scores.Scores):
        def update(self, outputs, batch, logits=None):
            scored.extend(each.name for each in self.outputs)
            super().update(outputs, batch, logits)

    def counted_pack(columns, layout, *others, **named):
        read.extend(columns.schema.names)
        return pack(columns, layout, *others, **named)

    def counted(measure):
        def measured(*arguments):
            with monkeypatch.context() as patch:
                patch.setattr(scores, "Scores", Counted)
                patch.setattr(packing, "pack", counted_pack)
                return measure(*arguments)

        return measured

    monkeypatch.setattr(summary_of_test, "_headline", counted(headline))
    monkeypatch.setattr(summary_of_test, "_importance", counted(importance))
    rows = range(60)
    outputs = ["main", "second", "third"]
    config = {
        "input_features": [{"name": name, "type": "number"} for name in ("a", "b")],
        "output_features": [{"name": name, "type": "number"} for name in outputs],
        "trainer": {
            "epochs": 20,
            "learning_rate": 0.05,
            "batch_size": 16,
            "validation_field": "main",
            "validation_metric": metric,
        },
        "backend": {"type": "local", "cache_dir": str(tmp_path / "caches")},
    }
    data = {name: [row * place for row in rows] for place, name in enumerate(["a", "b", *outputs])}
    outcome = distcore.experiment(config, data, output_directory=str(tmp_path), view="none")
    found = json.loads((Path(outcome.directory) / "summary.json").read_text())
    head, (first, last) = found["headline"], found["importance"]["inputs"]
    assert (head["target"], head["metric"], head["higher_is_better"]) == ("main", metric, higher)
    assert head["value"] == outcome.test_statistics["main"][metric]
    assert head["baseline"] == pytest.approx(of_the_mean(config, data, metric), rel=1e-4)
    assert head["better"] is True
    assert (first["input"], last) == ("b", {"input": "a", "worse_by": 0.0})  # a is 0 in every row
    assert first["worse_by"] > 0
    assert scored == ["main"] * 4  # the headline; all inputs; each input dealt out anew
    assert set(read) == {"a", "b", "main"}


def of_the_mean(config, data, metric):
    """The loss (of standardised numbers) or R² of the training rows' mean, on the test rows."""
    with open_cache(distcore.preprocess(config, data, view="none")) as reader:
        train, test = (
            reader.read(split, 0, reader.rows(split), ["main"]).column("main").to_numpy()
            for split in ("train", "test")
        )
    squares = ((test - train.mean()) ** 2).mean()
    return squares / np.var(data["main"], ddof=1) if metric == "loss" else 1 - squares / test.var()


class Told:
    """A feature of classes, and its network."""

    def __init__(self, name):
        self.name = name

    def network(self):
        return self

    def labels(self, metadata):
        return ["a", "b", "c"]

    def predictions(self, output, metadata):
        codes = output.argmax(1) if output.ndim == 2 else (output >= 0.5).astype(int)
        return pa.record_batch({f"{self.name}_predictions": ["abc"[code] for code in codes]})


class Rows(dict):
    rows = property(lambda self: len(self["c"]))


def test_the_worst_rows_are_those_whose_class_was_least_likely(monkeypatch):
    """A row whose class the model does not know was told as one of the first class."""
    monkeypatch.setattr(worst_rows, "WORST", 3)
    numbers = np.arange(20, 26)
    features = SimpleNamespace(outputs=[Told("c"), Told("b")], metadata={"c": {}, "b": {}})
    worst = Worst(numbers, SimpleNamespace(features=features))
    three = np.array(
        [[0.5, 0.25, 0.25], [0.5, 0.5, 0], [1, 0, 0], [np.nan, 0, 1], [0.25, 0, 0.75], [1, 0, 0]],
        np.float32,
    )
    two = np.array([0.25, 0.75, 1.0, 0.5, 0.0, 0.0], np.float32)
    truths = {"c": np.array([0, 2, -1, 0, 2, 2]), "b": np.array([0, 0, 1, 1, 1, 1])}

    def batches():
        for rows in (slice(0, 2), slice(2, 6)):
            truth = Rows({name: each[rows] for name, each in truths.items()})
            yield truth, {"c": three[rows], "b": two[rows]}

    assert len(list(worst.seen(batches()))) == 2

    def row(number, truth, predicted, error):
        return {"row": number, "truth": truth, "predicted": predicted, "error": error}

    assert worst.told() == {
        "c": [row(21, "c", "a", 1.0), row(25, "c", "a", 1.0), row(20, "a", "a", 0.5)],
        "b": [row(24, "b", "a", 1.0), row(25, "b", "a", 1.0), row(21, "a", "b", 0.75)],
    }
    monkeypatch.setattr(worst_rows, "WORST", 10)
    few = Worst(numbers, SimpleNamespace(features=features))
    list(few.seen(batches()))
    assert [each["row"] for each in few.told()["c"]] == [21, 25, 20, 24]


def test_the_worst_row_of_many_may_be_the_last():
    """Of a table sorted by time the first 200,000 rows are its past."""
    rows = 200_001
    features = SimpleNamespace(outputs=[Told("c")], metadata={"c": {}})
    worst = Worst(np.arange(rows), SimpleNamespace(features=features))
    said = np.full(rows, 0.75, np.float32)
    said[-1] = 0.0
    list(worst.seen([(Rows({"c": np.ones(rows, np.int64)}), {"c": said})]))
    assert worst.told()["c"][0]["row"] == rows - 1


def test_an_experiment_predicts_its_test_rows_once(place, monkeypatch):
    """The worst of them were looked for in a pass of their own, which took as long as the test."""
    asked, real = [], prediction.split_batches

    def counted(artifact, reader, split, *more):
        asked.append(split)
        return real(artifact, reader, split, *more)

    monkeypatch.setattr(prediction, "split_batches", counted)
    place.good("experiment")
    assert asked.count("test") == 1
    assert json.loads((place.results / "summary.json").read_text())["worst"]


def test_a_large_table_that_is_sorted_is_looked_at_from_all_over(tmp_path, monkeypatch, caplog):
    """Of the first test rows alone no input mattered and nothing was known of the classes behind
    them; the first rows of a large split drifted from all of a small one."""
    rows = np.random.default_rng(3)
    target = np.repeat([0, 1], 300)
    values = target + rows.normal(0, 0.1, 600)
    table = pa.table({"n": values, "when": np.arange(600) / 600, "y": target})
    config = {
        "input_features": [{"name": each, "type": "number"} for each in ("n", "when")],
        "output_features": [{"name": "y", "type": "binary"}],
        "preprocessing": {"split": {"type": "random", "probabilities": [0.6, 0.2, 0.2]}},
        "trainer": {
            "epochs": 8,
            "batch_size": 32,
            "learning_rate": 0.05,
            "validation_metric": "loss",
        },
    }
    monkeypatch.setattr(summary_of_test, "IMPORTANCE_ROWS", 40)
    monkeypatch.setattr(summary_of_test, "LOOKED_AT", 100)
    monkeypatch.setattr(drift, "LOOKED_AT", 100)
    outcome = distcore.experiment(config, table, output_directory=tmp_path / "results", view="none")
    summary = json.loads((Path(outcome.directory) / "summary.json").read_text())
    assert "has no value" not in caplog.text
    assert summary["importance"]["inputs"][0]["worse_by"] > 0.1
    assert 0.6 < summary["headline"]["baseline"] < 0.75  # ln 2: half of the rows are of each class
    assert max(max(each["drift"].values()) for each in summary["columns"]) < 0.3


def test_of_more_inputs_than_are_measured_report_and_figure_say_why_there_is_no_importance(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(summary_of_test, "IMPORTANCE_INPUTS", 1)
    config = {
        "input_features": [{"name": name, "type": "number"} for name in ("a", "b")],
        "output_features": [{"name": "y", "type": "number"}],
        "trainer": {"epochs": 1},
    }
    data = {name: [float(row) for row in range(60)] for name in ("a", "b", "y")}
    outcome = distcore.experiment(config, data, output_directory=tmp_path / "results", view="none")
    said = "There are 2 inputs: each costs a pass over the rows, and more than 1 are not measured."
    page = Path(outcome.report).read_text()
    assert f'<h2>What the inputs are worth</h2>\n<p class="soft">{said}</p>' in page
    with pytest.raises(UserError, match="There are 2 inputs"):
        outcome.plot("importance")


def test_a_file_called_config_is_not_taken_for_a_mapping_s_yaml(tmp_path, monkeypatch):
    """Its text, of whatever it is, stood in the report."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").write_text("password: x")
    session = SimpleNamespace(config=load_config(CONFIG))
    assert users_yaml(session) is None
    (tmp_path / "mine.yaml").write_text(CONFIG)
    session = SimpleNamespace(config=load_config("mine.yaml"))
    assert users_yaml(session) == CONFIG
