"""Records of trials that end by another's word, or stand again."""

from dataclasses import replace
from pathlib import Path

import pytest

from distcore_core.errors import TrainingError, UserError
from distcore_data.run_files import TRIAL
from distcore_search.objective import Objective
from distcore_search.records import (
    SearchWork,
    begin_again,
    begin_record,
    end_record,
    log_of,
    read_record,
    recount,
    statistics_of,
    write_record,
)
from distcore_search.rounds import add_round

OBJECTIVE = Objective("y", "loss", "minimize")
SPACE = {"trainer.epochs": {"space": "choice", "categories": [1, 2]}}


def losses(folder, *values):
    for number, value in enumerate(values, 1):
        metrics = {"validation": {"y": {"loss": value}}, "training": {"y": {"loss": 0.0}}}
        add_round(folder / "rounds.jsonl", {"step": number, "seconds": 0.0, "metrics": metrics})


@pytest.fixture
def work(tmp_path):
    return SearchWork(parameters=SPACE, objective=OBJECTIVE, directory=tmp_path)


@pytest.fixture
def trial(work):
    """The folder of a trial that has begun."""
    begin_record(work, "t1", {"trainer.epochs": 0})
    return work.folder("t1")


def test_a_stopped_trial_has_the_score_of_its_best_round(trial):
    losses(trial, 0.5, 0.2, 0.4)
    write_record(trial, {**read_record(trial), "seconds": 1.0})
    found = end_record(trial, "stopped", OBJECTIVE, seconds=2.0)
    assert found == read_record(trial)
    assert (found["state"], found["score"], found["rounds"], found["round"]) == (
        "stopped",
        0.2,
        3,
        2,
    )
    assert found["evaluation"] == {"y": {"loss": 0.2}}
    assert found["seconds"] == 3.0


def test_a_trial_that_failed_or_has_no_round_or_no_model_to_test_has_no_score(trial):
    losses(trial, 0.5)
    running = read_record(trial)
    assert end_record(trial, "failed", OBJECTIVE, "its process died")["score"] is None
    write_record(trial, running)
    found = end_record(trial, "stopped", Objective("y", "loss", "minimize", "test"))
    assert (found["score"], found["rounds"]) == (None, 1)
    (trial / "rounds.jsonl").unlink()
    write_record(trial, running)
    found = end_record(trial, "stopped", OBJECTIVE)
    assert (found["rounds"], found["round"], found["score"]) == (0, None, None)


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_a_trial_that_has_ended_keeps_its_own_word(trial, state):
    ended = {**read_record(trial), "state": state, "score": 0.1}
    write_record(trial, ended)
    assert end_record(trial, "failed", OBJECTIVE, "its process died") == ended
    assert read_record(trial) == ended


def test_a_trial_that_was_begun_is_gone_on_with(work, trial):
    begun = {**read_record(trial), "seconds": 5.0}
    write_record(trial, begun)
    assert begin_record(work, "t1", {"trainer.epochs": 1}) == begun == read_record(trial)


def test_rounds_after_a_trial_was_stopped_count_and_those_of_a_finished_one_are_its_own(trial):
    losses(trial, 0.5)
    end_record(trial, "stopped", OBJECTIVE)
    losses(trial, 0.5, 0.3)
    found = recount(trial, OBJECTIVE)
    assert found == read_record(trial)
    assert (found["score"], found["round"]) == (0.3, 2)
    finished = {**found, "state": "finished", "score": 0.1}
    write_record(trial, finished)
    assert recount(trial, OBJECTIVE) == finished


def test_what_was_never_begun_has_no_record(work):
    assert read_record(work.folder("t1")) == {}
    assert begin_again(work) == []


def test_a_record_that_cannot_be_written_is_told(trial, tmp_path):
    kept = read_record(trial)
    with pytest.raises(UserError, match=r"trial\.json cannot be written as JSON.*finite"):
        write_record(trial, {"score": float("nan")})
    assert read_record(trial) == kept
    closed = tmp_path / "closed"
    closed.touch()
    with pytest.raises(TrainingError, match=f"{closed}.*go on with a copy of the search"):
        write_record(closed, kept)


def test_a_trial_that_cannot_begin_is_told(work):
    """It ended in Python's words, without what to do."""
    nowhere = replace(work, directory=Path("/proc/distcore"))
    with pytest.raises(
        TrainingError, match=r"/proc/distcore/trials/t1.*go on with a copy of the search"
    ):
        begin_record(nowhere, "t1", {"trainer.epochs": 0})


def test_the_curves_of_a_trial_that_did_not_end_are_its_rounds(trial, caplog):
    losses(trial, 0.5, 0.25)
    curves = {"validation": {"y": {"loss": [0.5, 0.25]}}, "training": {"y": {"loss": [0.0, 0.0]}}}
    assert statistics_of(trial) == curves
    assert not caplog.messages
    (trial / "training_statistics.json").write_text("{}")
    assert statistics_of(trial) == curves
    assert "training_statistics.json" in caplog.text


def test_what_the_system_ended_stands_again_and_nothing_else(work):
    failed = {"state": "failed", "error": "no space"}
    records = {
        "t1": {**failed, "by_the_system": True, "raw": {"trainer.epochs": 1}},
        "t2": failed,
        "t3": {"state": "finished"},
    }
    for name, record in records.items():
        write_record(work.folder(name), record)
    assert begin_again(work) == ["t1"]
    assert read_record(work.folder("t1")) == {"state": "running", "raw": {"trainer.epochs": 1}}
    assert {name: read_record(work.folder(name)) for name in ("t2", "t3")} == {
        name: records[name] for name in ("t2", "t3")
    }


def test_of_a_damaged_record_it_is_said_what_removing_it_costs(tmp_path):
    """It said that this trial is run again; it is another one, and values may be others."""
    write_record(tmp_path / "0001", {"name": "0001", "state": "finished"})
    path = tmp_path / "0001" / TRIAL
    path.write_bytes(path.read_bytes().replace(b"finished", b"finishes"))
    with pytest.raises(UserError, match="Those of this one are in the config of its description"):
        read_record(tmp_path / "0001")
    path.unlink()
    assert read_record(tmp_path / "0001") == {}


def test_a_link_in_the_place_of_a_trials_log_is_removed(tmp_path):
    """The log of a search on Ray was written behind it, into somebody else's file."""
    (theirs := tmp_path / "theirs").write_text("mine")
    path = log_of(tmp_path / "trials" / "0000")
    path.symlink_to(theirs)
    log_of(path.parent).write_text("a log")
    assert (path.name, theirs.read_text(), path.read_text()) == ("log.txt", "mine", "a log")
