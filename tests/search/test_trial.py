"""What a trial is trained for, and which of its rounds it is judged by."""

import errno
import math
from types import SimpleNamespace

import pytest

from distcore.search import trial
from distcore.search.trial import (
    TrialWork,
    _outcome,
    finish_stopped,
    step_to_go_on_from,
    trial_values,
)
from distcore_core.errors import CheckpointError, TrainingError, UserError
from distcore_search.objective import Objective
from distcore_search.records import read_record
from distcore_search.rounds import add_round
from distcore_torch.training import checkpoint


def work(tmp_path, config, objective, **more):
    return TrialWork(
        config=config,
        parameters={},
        objective=objective,
        data=None,
        directory=tmp_path,
        **more,
    )


@pytest.mark.parametrize(
    ("trainer", "split", "kept_by"),
    [
        (None, "validation", ("y", "roc_auc")),
        ({"epochs": 3}, "test", ("y", "roc_auc")),
        ({}, "training", ("y", None)),
        ({"validation_metric": "roc_auc"}, "training", ("y", "roc_auc")),
        ({"validation_metric": "loss"}, "validation", (None, "loss")),
        ({"validation_field": "z"}, "validation", ("z", None)),
        # by y's accuracy, and by the first output that has one: the other was not filled in
        ({"validation_field": "y"}, "validation", ("y", "roc_auc")),
        ({"validation_metric": "roc_auc"}, "validation", ("y", "roc_auc")),
        ({"validation_field": "z", "validation_metric": "roc_auc"}, "test", ("z", "roc_auc")),
    ],
)
def test_weights_are_kept_by_what_the_search_is_after(tmp_path, trainer, split, kept_by):
    config = {} if trainer is None else {"trainer": trainer}
    objective = Objective("y", "roc_auc", "maximize", split)
    of_now = work(tmp_path, config, objective, given={})
    made = trial_values(of_now, {"trainer.batch_size": 8})["trainer"]
    assert (made.get("validation_field"), made.get("validation_metric")) == kept_by
    assert made["batch_size"] == 8
    assert made.get("epochs") == (trainer or {}).get("epochs")


def test_a_trial_of_an_older_search_goes_on_as_it_was_begun(tmp_path):
    """Its checkpoints would be refused, so that its model could not be made."""
    before = work(tmp_path, {"trainer": {"validation_field": "y"}}, Objective("y", "a", "maximize"))
    assert trial_values(before, {})["trainer"] == {"validation_field": "y"}
    for split in ("validation", "training"):
        before = work(tmp_path, {}, Objective("y", "a", "maximize", split))
        made = trial_values(before, {})["trainer"]
        assert made == {"validation_field": "y", "validation_metric": "a"}


CURVES = {
    "training": {"y": {"loss": [0.3, 0.2, 0.1], "accuracy": [0.6, 0.7, 0.8]}},
    "validation": {"y": {"loss": [0.5, 0.4, 0.6], "accuracy": [0.5, 0.9]}},
}


@pytest.mark.parametrize(
    ("objective", "score", "round", "evaluation"),
    [
        (Objective("y", "loss", "minimize"), 0.4, 2, {"loss": 0.4, "accuracy": 0.9}),
        (Objective("y", "loss", "maximize"), 0.6, 3, {"loss": 0.6}),  # it has no third accuracy
        (
            Objective("y", "accuracy", "maximize", "training", "validation"),
            0.8,
            3,
            {"loss": 0.6},
        ),
        (
            Objective("y", "loss", "minimize", "validation", "training"),
            0.4,
            2,
            {"loss": 0.2, "accuracy": 0.7},
        ),
    ],
)
def test_a_trial_is_judged_by_its_best_round(objective, score, round, evaluation):
    trained = SimpleNamespace(statistics=CURVES)
    found = _outcome(None, None, trained, objective, ())
    assert found == {"score": score, "round": round, "rounds": 3, "evaluation": {"y": evaluation}}


@pytest.mark.parametrize(
    ("goal", "is_last", "round", "loss"),
    [
        ("maximize", True, 3, 0.2),
        ("maximize", False, 1, 0.3),
        ("minimize", True, 2, 0.5),  # the trainer keeps weights by another metric
    ],
)
def test_of_rounds_with_one_score_the_trial_has_that_of_its_model(goal, is_last, round, loss):
    """Of trees, the last: `evaluation` told the others' loss."""
    curves = {"accuracy": [0.95, 0.94, 0.95], "loss": [0.3, 0.5, 0.2]}
    trained = SimpleNamespace(statistics={"validation": {"y": curves}})
    found = _outcome(None, None, trained, Objective("y", "accuracy", goal), (), is_last)
    assert (found["round"], found["evaluation"]["y"]["loss"]) == (round, loss)


@pytest.mark.parametrize("values", [[math.nan], [None], []])
def test_a_trial_without_a_finite_value_has_failed(values):
    trained = SimpleNamespace(statistics={"validation": {"y": {"loss": values}}})
    with pytest.raises(TrainingError, match="no finite validation loss of y"):
        _outcome(None, None, trained, Objective("y", "loss", "minimize"), ())


def test_a_trial_none_of_whose_checkpoints_is_whole_begins_anew(tmp_path, caplog):
    """It failed for good, and another trial won."""
    kept = tmp_path / "0001" / "checkpoints"
    assert step_to_go_on_from(kept.parent) == 0
    for step in (7, 14):
        checkpoint.save(kept, step, {}, {"step": step})
    assert step_to_go_on_from(kept.parent) == 14
    for each in kept.glob("step-*14/*"):
        each.write_bytes(b"")
    assert step_to_go_on_from(kept.parent) == 7
    assert len(list(kept.iterdir())) == 2
    for each in kept.glob("step-*/*"):
        each.write_bytes(b"")
    assert step_to_go_on_from(kept.parent) == 0
    assert not kept.exists()
    assert "Trial 0001 begins anew" in caplog.text


def test_a_trial_leaves_the_checkpoints_of_another_run_that_a_link_leads_to(tmp_path):
    """They were removed as old ones of its own; those on a larger disk are."""
    there, mine = tmp_path / "there" / "checkpoints", tmp_path / "0001"
    checkpoint.save(there, 7, {}, {"step": 7})
    mine.mkdir()
    (mine / "checkpoints").symlink_to(there)
    assert step_to_go_on_from(mine) == 7
    (there.parent / "description.json").touch()
    with pytest.raises(UserError, match="another run's folder"):
        step_to_go_on_from(mine)


def test_a_trial_whose_rounds_are_a_link_is_refused(tmp_path):
    (tmp_path / "rounds.jsonl").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="it is a link"):
        step_to_go_on_from(tmp_path)


def test_checkpoints_that_the_system_could_not_read_stay(tmp_path, monkeypatch):
    """They may be whole."""
    kept = tmp_path / "0001" / "checkpoints"
    checkpoint.save(kept, 7, {}, {"step": 7})

    def broken(path):
        raise CheckpointError(f"{path} cannot be read.") from OSError(errno.EIO, "no answer")

    monkeypatch.setattr(checkpoint, "load", broken)
    with pytest.raises(CheckpointError, match="None of the 1 checkpoint"):
        step_to_go_on_from(kept.parent)
    assert len(list(kept.iterdir())) == 1


@pytest.mark.parametrize(("last", "ending"), [(7, {"steps": 7, "until": 7}), (14, {"until": 14})])
def test_a_stopped_trial_s_model_is_of_no_later_round(tmp_path, monkeypatch, last, ending):
    """Trees, which begin anew, were trained to their last round, and had the score of that."""
    found = []
    made = {"model": "its digest"}
    monkeypatch.setattr(trial, "fit_trial", lambda *given, **how: found.append(how) or made)
    stopped = work(tmp_path, {}, Objective("y", "loss", "minimize"))
    folder = stopped.folder("0000")
    checkpoint.save(folder / "checkpoints", 7, {}, {"step": 7})
    add_round(folder / "rounds.jsonl", {"step": last, "seconds": 1.0, "metrics": {}})
    finish_stopped(stopped, {"name": "0000", "parameters": {}, "state": "stopped"})
    assert found == [ending]
    assert read_record(folder)["model"] == "its digest"


def test_a_stopped_trial_is_scored_on_the_split_of_the_search(tmp_path, monkeypatch):
    """It was scored on the validation split, which has no rows where the training split judges."""
    given = []
    monkeypatch.setattr(trial, "fit_trial", lambda work, *_, **how: given.append(work) or {})
    stopped = work(tmp_path, {}, Objective("y", "loss", "minimize", "training"))
    add_round(stopped.folder("0000") / "rounds.jsonl", {"step": 7, "seconds": 1.0, "metrics": {}})
    finish_stopped(stopped, {"name": "0000", "parameters": {}, "state": "stopped"})
    assert given == [stopped]


def test_a_trial_has_what_its_search_gives_it_unless_it_says_otherwise(tmp_path):
    given = {"early_stop": -1, "epochs": 300}
    of_now = work(tmp_path, {}, Objective("y", "a", "maximize"), given=given)
    aim = {"validation_field": "y", "validation_metric": "a"}
    assert trial_values(of_now, {})["trainer"] == {**given, **aim}
    searched = trial_values(of_now, {"trainer.epochs": 7})["trainer"]
    assert searched == {**given, **aim, "epochs": 7}
