"""What every trainer of boosted trees gets from the toolkit: lines, early stopping, resumption,
refusals. With the libraries of both of our plugins."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

import distcore
from distcore_core.errors import ConfigError, DifferentRun, UserError
from distcore_data.seals import read_lines
from distcore_testing import data
from distcore_testing.trainer_runs import digests
from distcore_torch.training import checkpoint

TRAINERS = {
    "lightgbm": {"min_data_in_leaf": 5, "feature_fraction": 0.5},
    "xgboost": {"subsample": 0.8, "colsample_bytree": 0.5},
}
BOTH = pytest.mark.parametrize("trainer", TRAINERS)


def config(folder, trainer, outputs=({"name": "y", "type": "binary"},), **options):
    made = data.config(str(folder / "cache"), output_features=[dict(each) for each in outputs])
    made["backend"]["trainer"] = {
        "type": trainer,
        "num_threads": 1,
        **TRAINERS[trainer],
        **options,
    }
    return made


def trained(folder, trainer, rows=600, **options):
    return distcore.train(
        config(folder, trainer, **options),
        data.table(rows),
        output_directory=folder / "results",
        view="none",
    )


def log_of(outcome):
    text = (Path(outcome.directory) / "training_log.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@BOTH
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"validation_metric": "roc_acu"},
            "no output feature has a metric 'roc_acu'; did you mean",
        ),
        ({"validation_field": "y", "validation_metric": "r2"}, "y has no metric 'r2'"),
        ({"validation_field": "why"}, "validation_field: .*'why'"),
    ],
)
def test_a_metric_that_no_output_has_is_refused(trainer, asked, said, tmp_path):
    """The best round would be another one than was asked for."""
    given = config(tmp_path, trainer)
    given["trainer"] = asked
    with pytest.raises(ConfigError, match=said):
        distcore.train(given, data.table(200), output_directory=tmp_path / "results", view="none")


@BOTH
def test_a_line_every_so_many_rounds_with_every_metric(trainer, tmp_path):
    outcome = trained(
        tmp_path, trainer, num_boost_round=40, early_stopping_rounds=0, trees_per_evaluation=10
    )
    log = log_of(outcome)
    assert [each["epoch"] for each in log] == [10, 20, 30, 40]
    assert {each["unit"] for each in log} == {"round"}
    losses = [each["metrics"]["training"]["y"]["loss"] for each in log]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.9 * losses[0]
    assert all("roc_auc" in each["metrics"]["validation"]["y"] for each in log)
    assert outcome.training_statistics["training"]["y"]["loss"] == losses


@BOTH
def test_the_loss_that_stops_early_is_that_of_the_reports(trainer, tmp_path):
    """With weights, too, which libraries normalise each in their way."""
    outputs = [{"name": "y", "type": "binary", "loss": {"positive_class_weight": 3.0}}]
    outcome = trained(tmp_path, trainer, outputs=outputs, num_boost_round=400)
    last = log_of(outcome)[-1]
    assert last["patience_left"] == 0
    assert last["epoch"] == last["best_evaluation"] + 20 < 400
    assert last["value"] == pytest.approx(last["best"], rel=1e-5)
    manifest = json.loads((Path(outcome.model) / "model.json").read_text())
    assert manifest["extra"]["best"]["step"] == last["best_evaluation"]


@BOTH
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"validation_field": "z"}, ("z", "loss")),
        ({"validation_field": "y"}, ("y", "loss")),
        ({"validation_metric": "r2"}, ("z", "r2")),
        ({"validation_field": "y", "validation_metric": "roc_auc"}, ("y", "roc_auc")),
    ],
)
def test_the_best_is_told_of_what_was_asked_for(trainer, asked, told, tmp_path):
    outputs = [{"name": "y", "type": "binary"}, {"name": "z", "type": "number"}]
    given = config(tmp_path, trainer, outputs, num_boost_round=6)
    given["trainer"] = asked
    outcome = distcore.train(
        given, data.table(200), output_directory=tmp_path / "results", view="none"
    )
    best = json.loads((Path(outcome.model) / "model.json").read_text())["extra"]["best"]
    assert (best["feature"], best["metric"]) == told
    assert {(each["feature"], each["metric"]) for each in log_of(outcome)} == {told}


@BOTH
@pytest.mark.parametrize("falls", [True, False])
def test_what_a_listener_ended_training_at_is_told_once(trainer, falls, tmp_path, monkeypatch):
    """Again only if the model has fewer rounds."""
    told = []
    ended = "distcore_torch.training.open_job.Opened.tell_epoch"
    monkeypatch.setattr(ended, lambda job, **said: told.append(said["step"]) or "It is enough.")
    if not falls:
        better = "distcore_trees.boosting.Growing.better"
        monkeypatch.setattr(better, lambda each, value: each.standing.best == 0)
    outcome = trained(tmp_path, trainer, num_boost_round=40, trees_per_evaluation=2)
    rounds = [2] if falls else [2, 2]
    assert told == rounds
    assert {each["epoch"] for each in log_of(outcome)} == {2}
    assert len(outcome.training_statistics["validation"]["y"]["loss"]) == len(rounds)
    best = json.loads((Path(outcome.model) / "model.json").read_text())["extra"]["best"]
    assert best["step"] == (2 if falls else 1)


@BOTH
def test_the_lines_are_printed_while_it_trains(trainer, tmp_path, capsys):
    distcore.train(
        config(tmp_path, trainer, num_boost_round=400),
        data.table(),
        output_directory=tmp_path / "results",
        view="lines",
    )
    said = capsys.readouterr().err
    assert "round 20/400   train loss " in said
    assert "   validation loss " in said
    assert "stopped early at round " in said
    assert "; best was " in said
    *_, before, last = re.findall(r"(?m)^round (\d+)/400(.*)", said)
    assert ", scores of " not in before[1]
    kept = int(last[0]) - 20  # the default patience
    assert re.search(rf"^, scores of {kept}   train loss .*   best 0\.\d+ at {kept}, ", last[1])


def test_between_two_lines_it_is_told_how_far_it_is(tmp_path, capsys, monkeypatch):
    """After a long silence, which is none here; looked for often, so that a machine on which this
    takes a moment is seen in between, too."""
    monkeypatch.setattr("distcore.workflow.progress_view.SILENCE", 0.0)
    monkeypatch.setattr("distcore.workflow.progress_view.PERIOD", 0.01)
    rounds = {"num_boost_round": 2000, "trees_per_evaluation": 2000, "early_stopping_rounds": 0}
    distcore.train(
        config(tmp_path, "lightgbm", **rounds),
        data.table(),
        output_directory=tmp_path / "results",
        view="lines",
    )
    said = capsys.readouterr().err
    assert re.search(
        r"(?m)^train +round \d+ of 2,?000 \(.*best validation loss 0\.\d+ at \d+, .* left$", said
    )


KILLED = """
import os, signal, sys
from distcore.cli.main import main

saved = []

def heard(event, given):
    if event == "os.rename" and "/checkpoints/step-" in str(given[1]):
        saved.append(given[1])
        if len(saved) == 3:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(heard)
sys.exit(main(sys.argv[1:]))
"""
"""The command line with a SIGKILL when a third checkpoint is about to take its name."""


@pytest.mark.system
@BOTH
def test_a_run_that_was_killed_ends_with_the_bytes_of_one_that_was_not(trainer, tmp_path):
    """Two outputs, rows and columns drawn at random."""
    outputs = [{"name": "y", "type": "binary"}, {"name": "z", "type": "number"}]
    options = {"num_boost_round": 600, "early_stopping_rounds": 0, "trees_per_evaluation": 20}
    made = config(tmp_path, trainer, outputs, **options)
    pyarrow.parquet.write_table(data.table(), tmp_path / "data.parquet")
    whole = distcore.train(
        made, str(tmp_path / "data.parquet"), output_directory=tmp_path / "whole", view="none"
    )
    (tmp_path / "config.json").write_text(json.dumps(made))
    words = ["--config", str(tmp_path / "config.json"), "--dataset", str(tmp_path / "data.parquet")]
    command = [sys.executable, "-c", KILLED, "train", *words]
    killed = subprocess.run([*command, "--output_directory", str(tmp_path / "killed")], check=False)
    assert killed.returncode == -signal.SIGKILL
    run = tmp_path / "killed" / "experiment_run"
    assert list(run.glob("checkpoints/step-????????"))
    again = distcore.train(made, str(tmp_path / "data.parquet"), model_resume_path=run, view="none")
    assert digests(Path(again.model)) == digests(Path(whole.model))
    assert again.training_statistics == whole.training_statistics
    assert [each["epoch"] for each in log_of(again)] == [each["epoch"] for each in log_of(whole)]


@BOTH
def test_a_run_goes_on_with_more_rounds_and_with_no_other_trees(trainer, tmp_path):
    options = {"early_stopping_rounds": 0, "trees_per_evaluation": 5}
    first = trained(tmp_path, trainer, num_boost_round=10, **options)
    again = {"model_resume_path": first.directory, "view": "none"}
    with pytest.raises(
        DifferentRun, match=r"trainer\.learning_rate was 0\.\d+ and is 0\.5\. Resume"
    ):
        distcore.train(
            config(tmp_path, trainer, num_boost_round=10, learning_rate=0.5, **options),
            data.table(),
            **again,
        )
    with pytest.raises(DifferentRun, match="has 10 rounds, and num_boost_round is 5"):
        distcore.train(
            config(tmp_path, trainer, num_boost_round=5, **options), data.table(), **again
        )
    longer = distcore.train(
        config(tmp_path, trainer, num_boost_round=20, **options), data.table(), **again
    )
    whole = trained(tmp_path / "whole", trainer, num_boost_round=20, **options)
    assert digests(Path(longer.model)) == digests(Path(whole.model))


@BOTH
def test_a_run_goes_on_where_one_of_two_outputs_was_over(trainer, tmp_path):
    outputs = [{"name": "y", "type": "binary"}, {"name": "z", "type": "number"}]
    options = {"early_stopping_rounds": 3, "trees_per_evaluation": 1, "learning_rate": 0.3}
    whole = trained(tmp_path / "whole", trainer, outputs=outputs, num_boost_round=60, **options)
    curves = whole.training_statistics["training"]
    losses = {name: curves[name]["loss"][:-1] for name in "yz"}  # the last is of the best rounds
    rounds = len(losses["y"]) - 2
    assert losses["y"][rounds - 1] == losses["y"][-1]  # over by then, and grows no more
    assert losses["z"][rounds - 1] != losses["z"][-1]
    first = trained(tmp_path / "first", trainer, outputs=outputs, num_boost_round=rounds, **options)
    again = distcore.train(
        config(tmp_path / "first", trainer, outputs, num_boost_round=60, **options),
        data.table(600),
        model_resume_path=first.directory,
        view="none",
    )
    assert digests(Path(again.model)) == digests(Path(whole.model))
    found = again.training_statistics["training"]
    for name in "yz":  # a run's last round is not evaluated but for the model that it leaves
        assert found[name]["loss"][rounds - 1 :] == curves[name]["loss"][rounds:]


@BOTH
@pytest.mark.parametrize("outputs", ["y", "yz"])
def test_a_run_that_stopped_early_goes_on_with_more_patience(trainer, outputs, tmp_path):
    """It was over for good."""
    kinds = {"y": "binary", "z": "number"}
    outputs = [{"name": name, "type": kinds[name]} for name in outputs]
    options = {"num_boost_round": 60, "trees_per_evaluation": 1, "learning_rate": 0.3}
    first = trained(tmp_path, trainer, outputs=outputs, early_stopping_rounds=2, **options)
    stopped, more = log_of(first)[-1]["epoch"], {"early_stopping_rounds": 10, **options}
    again = distcore.train(
        config(tmp_path, trainer, outputs, **more),
        data.table(600),
        model_resume_path=first.directory,
        view="none",
    )
    whole = trained(tmp_path / "whole", trainer, outputs=outputs, **more)
    assert stopped < log_of(again)[-1]["epoch"] == log_of(whole)[-1]["epoch"]
    if trainer == "lightgbm" or len(outputs) == 1:  # XGBoost draws anew at each checkpoint
        assert digests(Path(again.model)) == digests(Path(whole.model))


def test_a_run_goes_on_from_a_checkpoint_of_a_version_that_kept_whether_it_was_over(tmp_path):
    options = {"num_boost_round": 12, "trees_per_evaluation": 2}
    whole = trained(tmp_path, "xgboost", **options)
    folder = Path(whole.directory) / "checkpoints"
    older = checkpoint.load_newest(folder)
    for standing in older.state["standings"]:
        assert standing.pop("grown_out") is False
        standing["over"] = True
    shutil.rmtree(folder)
    checkpoint.save(folder, older.step, older.tensors, older.state)
    more = {**options, "num_boost_round": 20}
    again = distcore.train(
        config(tmp_path, "xgboost", **more),
        data.table(600),
        model_resume_path=whole.directory,
        view="none",
    )
    assert log_of(again)[-1]["epoch"] == 20


@BOTH
def test_a_search_of_the_trainers_options(trainer, tmp_path):
    """A trial is one model in one process; its score is that of the trees that are kept."""
    made = config(tmp_path, trainer, num_boost_round=40, trees_per_evaluation=2)
    made["hyperopt"] = {
        "goal": "maximize",
        "metric": "roc_auc",
        "output_feature": "y",
        "parameters": {
            "backend.trainer.learning_rate": {"space": "grid_search", "values": [0.001, 0.1, 0.3]}
        },
        "executor": {"type": "local", "max_concurrent_trials": 1},
    }
    rows = data.table()
    found = distcore.hyperopt(made, rows, output_directory=tmp_path / "search")
    assert [each["state"] for each in found.trials] == ["finished"] * 3
    assert all(each["rounds"] > 1 for each in found.trials)
    manifest = json.loads((Path(found.model) / "model.json").read_text())
    assert manifest["extra"]["best"]["metric"] == "roc_auc"
    assert manifest["extra"]["best"]["value"] == found.best["score"]


def test_a_search_goes_on_with_other_threads_and_with_no_other_trees(tmp_path):
    """It is moved to a machine with other CPUs."""

    def searched(**options):
        made = config(tmp_path, "lightgbm", num_boost_round=4, **options)
        made["hyperopt"] = {
            "metric": "loss",
            "output_feature": "y",
            "parameters": {
                "backend.trainer.learning_rate": {"space": "grid_search", "values": [0.1, 0.3]}
            },
            "executor": {"type": "local", "max_concurrent_trials": 1},
        }
        folder = tmp_path / "search" / "hyperopt_run"
        going_on = {"model_resume_path": folder} if folder.exists() else {}
        return distcore.hyperopt(
            made, data.table(), output_directory=tmp_path / "search", view="none", **going_on
        )

    first = searched()
    assert searched(num_threads=2, lambda_l2=0.0).best == first.best
    for name, value in {"num_leaves": 7, "early_stopping_rounds": 1}.items():
        with pytest.raises(UserError, match=rf"another one: backend\.trainer\.{name} was"):
            searched(**{name: value})


def test_a_search_that_changes_what_trials_ask_for_is_refused(tmp_path):
    made = config(tmp_path, "lightgbm")
    made["hyperopt"] = {
        "metric": "loss",
        "output_feature": "y",
        "parameters": {"backend.trainer.num_threads": {"space": "grid_search", "values": [1, 2]}},
    }
    with pytest.raises(ConfigError, match="change the workers, threads or GPUs of a trial"):
        distcore.hyperopt(made, data.table(), output_directory=tmp_path / "search")


@BOTH
def test_texts_and_sets_are_refused_by_name(trainer, tmp_path):
    made = config(tmp_path, trainer)
    made["input_features"].append({"name": "words", "type": "text"})
    refused = pytest.raises(UserError, match=r"cannot use words.*Leave these inputs out")
    with refused:
        distcore.train(made, data.table(), output_directory=tmp_path / "results")
    with refused:
        distcore.plan(made, dataset=data.table())


@BOTH
def test_without_validation_rows_the_loss_is_told_and_every_round_kept(trainer, tmp_path, caplog):
    """Whatever metric is asked for: only the validation split has it."""
    made = config(tmp_path, trainer, num_boost_round=4)
    made["preprocessing"] = {"split": {"type": "random", "probabilities": [0.8, 0.0, 0.2]}}
    made["trainer"] = {"validation_metric": "accuracy"}
    assert distcore.plan(made, dataset=data.table(200))["training"]["workers"] == 1
    outcome = distcore.train(
        made, data.table(200), output_directory=tmp_path / "results", view="none"
    )
    best = json.loads((Path(outcome.model) / "model.json").read_text())["extra"]["best"]
    assert (best["metric"], best["step"]) == ("loss", 4)
    said = "no validation rows, so trainer.validation_metric accuracy picks no round: all are kept"
    assert said in caplog.text
    ways = "Give preprocessing.split a validation part, or a validation_set beside the training_set"
    assert f"{ways}." in caplog.text
    last = list(read_lines(Path(outcome.directory) / "training_log.jsonl"))[-1]
    assert last["value"] is not None
    assert (last["best"], last["best_evaluation"], last["patience_left"]) == (None, None, None)
    made["backend"]["trainer"] = {"type": "local"}
    caplog.clear()
    distcore.train(made, data.table(200), output_directory=tmp_path / "results", view="none")
    assert "accuracy picks no round: the last weights are kept" in caplog.text


@BOTH
def test_a_number_is_clipped_in_predictions_and_in_what_is_scored(trainer, tmp_path):
    """Both were of what the trees say."""
    found = {}
    for clip in (None, [0.0, 1.5]):
        outputs = [{"name": "z", "type": "number", "clip": clip}, {"name": "y", "type": "binary"}]
        outcome = distcore.experiment(
            config(tmp_path, trainer, outputs, num_boost_round=20),
            data.table(600),
            output_directory=tmp_path / "results",
            view="none",
        )
        rows = data.table(200, seed=3)
        evaluated = distcore.evaluate(outcome.model, rows, output_directory=tmp_path / str(clip))
        predicted = distcore.load(outcome.model).predict(rows)
        said = np.array(predicted["z_predictions"])
        error = np.abs(said - np.array(rows["z"])).mean()
        assert evaluated["z"]["mean_absolute_error"] == pytest.approx(error, rel=1e-5)
        best = outcome.training_statistics["validation"]["z"]["mean_absolute_error"][-1]
        summary = json.loads((Path(outcome.directory) / "summary.json").read_text())
        again = summary["scores"]["z"]["mean_absolute_error"]["validation"]
        assert best == pytest.approx(again, rel=1e-5)
        found[str(clip)] = said, np.array(predicted["y_probability"])
    free, clipped = found.values()
    assert free[0].min() < 0.0 < 1.5 < free[0].max()
    assert clipped[0].min() == 0.0
    assert clipped[0].max() == 1.5


@BOTH
def test_an_option_that_the_library_does_not_have(trainer, tmp_path):
    with pytest.raises(ConfigError, match="learning_rate"):
        distcore.plan(config(tmp_path, trainer, learning_rat=5), data.table())


@BOTH
@pytest.mark.parametrize(
    ("output", "column", "value"),
    [
        ({"name": "y", "type": "binary", "loss": {"positive_class_weight": 20.0}}, "y", True),
        (
            {
                "name": "k",
                "type": "category",
                "loss": {"class_weights": {"low": 20.0, "mid": 1.0, "high": 1.0}},
            },
            "k",
            "low",
        ),
    ],
)
def test_a_class_that_weighs_more_is_predicted_more_often(trainer, output, column, value, tmp_path):
    shares = []
    for outputs in ([{name: output[name] for name in ("name", "type")}], [output]):
        outcome = trained(tmp_path, trainer, outputs=outputs, num_boost_round=20)
        predicted = distcore.load(outcome.model).predict(data.table(300, seed=5))
        shares.append(predicted[f"{column}_predictions"].to_pylist().count(value) / 300)
    assert shares[1] > shares[0] + 0.05


@BOTH
def test_going_on_from_another_model_is_refused(trainer, tmp_path):
    outcome = trained(tmp_path, trainer, num_boost_round=5)
    with pytest.raises(UserError, match="does not start from another model"):
        distcore.train(
            config(tmp_path, trainer, num_boost_round=5),
            data.table(),
            output_directory=tmp_path / "again",
            model_load_path=outcome.model,
        )


@BOTH
@pytest.mark.parametrize(
    ("name", "kind", "loss"),
    [
        ("y", "binary", "focal"),
        ("k", "category", "poly"),
        ("z", "number", "mean_absolute_percentage_error"),
        ("z", "number", "root_mean_squared_percentage_error"),
    ],
)
def test_a_loss_that_the_library_does_not_have_is_refused_by_name(
    trainer, name, kind, loss, tmp_path
):
    given = config(tmp_path, trainer, [{"name": name, "type": kind, "loss": loss}])
    said = rf"no loss '{loss}', which '{name}' asks for.*local or data_parallel"
    refused = pytest.raises(UserError, match=said)
    with refused:
        distcore.plan(given, data.table())
    with refused:
        distcore.train(given, data.table(), output_directory=tmp_path / "results")


@BOTH
@pytest.mark.parametrize(("name", "kind"), [("y", "binary"), ("k", "category")])
@pytest.mark.parametrize("option", ["robust_lambda", "confidence_penalty"])
def test_an_option_of_a_loss_that_trees_do_not_have_is_refused(
    trainer, name, kind, option, tmp_path
):
    outputs = [{"name": name, "type": kind, "loss": {option: 0.1}}]
    said = rf"no {option}, which the loss of '{name}' asks for.*local or data_parallel"
    with pytest.raises(UserError, match=said):
        distcore.plan(config(tmp_path, trainer, outputs), data.table())
    outputs[0]["loss"][option] = 0
    assert distcore.plan(config(tmp_path, trainer, outputs), data.table())


@BOTH
def test_the_upper_half_of_a_seed_counts_and_the_largest_is_fine(trainer, tmp_path):
    """Past several checkpoints, from each of which random numbers begin anew."""
    rows = data.table(200)
    rows = rows.append_column("part", pyarrow.array([0, 0, 1, 2] * 50))
    made = config(tmp_path, trainer, num_boost_round=4, trees_per_evaluation=1)
    made["preprocessing"] = {"split": {"type": "fixed", "column": "part"}}
    trees = []
    for seed in ((1 << 63) - 1, 0, 1 << 40):
        outcome = distcore.train(
            made | {"random_seed": seed}, rows, output_directory=tmp_path / "results", view="none"
        )
        (path,) = Path(outcome.model).glob("trees-0.*")
        trees.append(path.read_text("latin-1").partition("\nparameters:")[0])
    assert trees[1] != trees[2]


def with_target(values):
    """Rows whose z is made of what it was."""
    rows = data.table(600)
    return rows.set_column(
        rows.schema.get_field_index("z"), "z", pyarrow.array(values(rows["z"].to_numpy()))
    )


def by_huber(folder, trainer, rows, where, **options):
    outputs = [{"name": "z", "type": "number", "loss": {"type": "huber"}}]
    given = config(folder, trainer, outputs, trees_per_evaluation=10, **options)
    return distcore.train(given, rows, view="none", **where)


@BOTH
def test_huber_of_a_target_far_from_0_is_learned(trainer, tmp_path, caplog):
    """And gone on with to the same bytes."""
    rows = with_target(lambda z: 50.0 + z)
    where = {"output_directory": tmp_path / "results"}
    whole = by_huber(tmp_path, trainer, rows, where, num_boost_round=160)
    assert whole.training_statistics["validation"]["z"]["r2"][-1] > 0.8
    first = by_huber(tmp_path, trainer, rows, where, num_boost_round=120)
    where = {"model_resume_path": first.directory}
    again = by_huber(tmp_path, trainer, rows, where, num_boost_round=160)
    assert digests(Path(again.model)) == digests(Path(whole.model))
    assert "learns little" not in caplog.text


@BOTH
def test_a_delta_that_is_small_beside_the_target_is_told(trainer, tmp_path, caplog):
    rows, where = with_target(lambda z: 1e5 * z), {"output_directory": tmp_path / "results"}
    outcome = by_huber(tmp_path, trainer, rows, where)
    assert outcome.training_statistics["validation"]["z"]["r2"][-1] < 0.1
    assert f"The trainer {trainer} learns little of z by the loss huber: loss.delta (1)" in (
        caplog.text
    )
