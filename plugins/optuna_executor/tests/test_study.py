"""What Optuna is told of a search's trials, and what it chooses by that."""

import logging

import optuna
import pytest
from optuna.trial import TrialState

from distcore_core.contracts import Axis, SearchJob
from distcore_optuna.options import LocalOptions
from distcore_optuna.study import Study, quiet
from distcore_search.objective import Objective
from distcore_search.records import ROUNDS, SearchWork, begin_record, write_record
from distcore_search.rounds import add_round

ASHA = {"type": "asha", "max_t": 20, "grace_period": 20}
MEDIAN = {"type": "median_stopping_rule", "time_attr": "training_iteration"}


def study(folder, options=None, **more):
    work = SearchWork(
        parameters={"x": {"space": "uniform", "lower": 0, "upper": 1}},
        objective=Objective("y", "accuracy", "maximize"),
        directory=folder,
    )
    job = SearchJob(
        function=None, work=work, axes={"x": Axis(kind="float", low=0.0, high=1.0)}, variants=None,
        trials=60, goal="maximize", directory=folder, **{"seed": 42, **more},
    )  # fmt: skip
    return Study(job, LocalOptions.model_validate(options or {}))


def test_the_good_half_is_searched_where_its_trials_reach_max_t(tmp_path):
    """Those of the bad half ended by themselves, and counted as better than any that was
    stopped."""
    chosen = []
    with quiet():
        made = study(tmp_path, {"scheduler": ASHA})
        for _ in range(30):
            trial = made.ask()
            good = trial.params["x"] < 0.5
            made.tell(trial, *(("stopped", 0.95) if good else ("finished", 0.55)))
            chosen.append(good)
    assert sum(chosen[10:]) >= 15


@pytest.mark.parametrize(
    ("options", "state", "found"),
    [
        ({"scheduler": ASHA}, "stopped", TrialState.COMPLETE),
        ({"scheduler": {"type": "hyperband"}}, "stopped", TrialState.COMPLETE),
        ({}, "stopped", TrialState.COMPLETE),  # the time was up
        # which compare with the finished ones alone
        ({"scheduler": MEDIAN}, "stopped", TrialState.PRUNED),
        ({"pruner": "median"}, "stopped", TrialState.PRUNED),
        ({"pruner": "hyperband"}, "stopped", TrialState.COMPLETE),
        ({"scheduler": MEDIAN}, "finished", TrialState.COMPLETE),
        ({"scheduler": ASHA}, "failed", TrialState.FAIL),
    ],
)
@pytest.mark.parametrize("anew", [False, True])
def test_what_optuna_calls_a_trial_that_ended(tmp_path, options, state, found, anew):
    """anew: its journal is lost."""
    with quiet():
        made = study(tmp_path, options)
        trial = made.ask()
        folder = made.job.work.folder("0000")
        (folder.parent / ".ipynb_checkpoints").mkdir(parents=True)  # of who looked at a trial
        record = begin_record(made.job.work, "0000", trial.params)
        metrics = {"validation": {"y": {"accuracy": 0.9}}}
        add_round(folder / ROUNDS, {"step": 1, "epoch": 1, "seconds": 1.0, "metrics": metrics})
        score = None if state == "failed" else 0.9
        write_record(folder, {**record, "state": state, "score": score})
        if anew:
            made.path.unlink()
            made = study(tmp_path, options)
        else:
            made.tell(trial, state, score)
        (told,) = made.study.get_trials()
    assert told.state == found
    assert found != TrialState.COMPLETE or told.value == 0.9


@pytest.mark.parametrize("before", ["INFO", "ERROR"])
def test_optuna_is_no_louder_than_it_was(before, monkeypatch):
    level = getattr(logging, before)
    monkeypatch.setattr(logging.getLogger("optuna"), "level", level)
    with quiet():
        assert optuna.logging.get_verbosity() == max(level, logging.WARNING)
    assert optuna.logging.get_verbosity() == level


def test_searches_of_neighbouring_seeds_share_no_trial(tmp_path):
    """Trial n of seed 43 was trial n + 1 of seed 42."""
    chosen = {}
    for seed in (42, 43):
        with quiet():
            (folder := tmp_path / str(seed)).mkdir()
            made = study(folder, seed=seed)
            chosen[seed] = [made.ask().params["x"] for _ in range(5)]
    assert len(set(chosen[42] + chosen[43])) == 10


@pytest.mark.parametrize("beside", [{}, {"scheduler": None}, {"scheduler": {"type": "fifo"}}])
@pytest.mark.parametrize(
    ("name", "scheduler"),
    [("median", "median_stopping_rule"), ("hyperband", "hyperband"), (None, "fifo")],
)
def test_a_pruner_is_a_scheduler(name, scheduler, beside):
    """Its trials were given nothing, as under none, and ended by early_stop."""
    options = LocalOptions.model_validate({"pruner": name, **beside})
    found = options.scheduler
    assert (found.type, found.time_attr, found.limit) == (scheduler, "training_iteration", None)
    assert LocalOptions.model_validate(options.model_dump()) == options


def test_a_pruner_that_is_none_or_is_beside_a_scheduler_is_refused():
    with pytest.raises(ValueError, match="two words for the same; keep scheduler"):
        LocalOptions.model_validate({"pruner": "median", "scheduler": ASHA})
    with pytest.raises(ValueError, match="should be 'median' or 'hyperband'"):
        LocalOptions.model_validate({"pruner": "percentile"})


@pytest.mark.parametrize(("name", "first"), [("median", 5), ("hyperband", 1)])
def test_a_pruner_stops_the_worse_trials(tmp_path, name, first):
    """first: how many trials are never stopped, for there are too few to compare with."""
    with quiet():
        made = study(tmp_path, {"pruner": name})
        stopped = []
        for number in range(12):
            trial = made.ask()
            found = [made.report(trial, 0.9 - number / 20, time) for time in range(1, 10)]
            stopped.append(any(found))
            made.tell(trial, "stopped" if any(found) else "finished", 0.9 - number / 20)
    assert not any(stopped[:first])
    assert any(stopped[first:])
