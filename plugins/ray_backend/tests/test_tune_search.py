"""The names that trials get as Tune's Optuna chooses them; what Tune's callback does, without a
cluster."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from distcore_core.contracts import Axis
from distcore_core.errors import Stopped
from distcore_ray.tune import _callback, _quiet
from distcore_ray.tune_search import _domain, algorithm, searcher
from distcore_search.records import ROUNDS, begin_record, write_record
from distcore_search.rounds import add_round
from distcore_testing import ExecutorSuite
from distcore_torch.training.interrupt import Interrupt

NAME = "trainer.epochs"


def asked(count, begun=(), name=NAME):
    """(name, value) of the trials that are chosen: one of two values each."""
    job = ExecutorSuite().job(Path("unused"), None, trials=count)
    job = replace(job, axes={name: Axis(kind="choice", low=0, high=1)})
    search = searcher(job, list(begun))
    found = [search.suggest(str(number)) for number in range(count)]
    return [(each["name"], each["raw"][name]) for each in found]


def test_trials_that_happen_to_have_the_same_values_are_trials_of_their_own():
    found = asked(8)
    assert [name for name, _ in found] == [f"{number:04d}" for number in range(8)]
    assert {value for _, value in found} == {0, 1}


def test_one_that_was_begun_keeps_its_name_and_one_that_ended_is_not_gone_on_with():
    begun = [
        {"name": "0000", "raw": {NAME: 1}, "state": "finished", "score": 0.5},
        {"name": "0001", "raw": {NAME: 1}, "state": "running"},
        {"name": "0002", "raw": {NAME: 1}, "state": "running"},
    ]
    found = asked(6, begun)
    assert found[:2] == [("0001", 1), ("0002", 1)]
    assert [name for name, _ in found[2:]] == ["0003", "0004", "0005", "0006"]


@pytest.mark.parametrize(
    ("state", "score"), [("finished", 0.75), ("failed", None), ("running", None)]
)
def test_optuna_hears_the_score_of_a_trial_that_ended_and_not_its_last_round(
    tmp_path, state, score
):
    """One that its scheduler stopped is still running by its record."""
    job = ExecutorSuite().job(tmp_path, None, trials=1)
    job = replace(job, axes={NAME: Axis(kind="choice", low=0, high=1)})
    search = searcher(job, [])
    chosen = search.suggest("a")
    record = begin_record(job.work, chosen["name"], chosen["raw"])
    folder = job.work.folder(chosen["name"])
    if state != "running":
        write_record(folder, {**record, "state": state, "score": score})
    objective, rounds = job.work.objective, [0.25, 0.625, 0.5]
    for step, told in enumerate(rounds, 1):
        metrics = {"validation": {objective.feature: {objective.metric: told}}}
        add_round(folder / ROUNDS, {"step": step, "seconds": 1.0, "metrics": metrics})
    score = objective.best_of(rounds)[0] if state == "running" else score
    search.on_trial_complete("a", {"training_iteration": 4, "score": 0.5})
    (found,) = search._ot_study.trials
    assert (found.state.name == "COMPLETE", found.value) == (state != "failed", score)


@pytest.mark.parametrize("begun", [0, 1])
def test_points_come_first_each_in_place_of_a_sample_and_what_ended_is_told(begun):
    axes = {name: Axis(kind="float", low=0.0, high=1.0) for name in "ab"}
    points = ({"a": 0.125, "b": 0.25}, {"a": 0.375})
    job = replace(ExecutorSuite().job(Path("unused"), None, trials=3), axes=axes, points=points)
    before = [{"name": "0000", "raw": points[0], "state": "finished", "score": 0.5}][:begun]
    search = searcher(job, before)
    scores = [each.value for each in search._ot_study.trials]
    assert [each for each in scores if each is not None] == [0.5] * begun
    found = [search.suggest(str(number))["raw"] for number in range(begun, 3)]
    assert found[: 1 - begun] == [points[0]][begun:]
    assert [each["a"] == 0.375 for each in found[1 - begun :]] == [True, False]


@pytest.mark.parametrize("goal", ["maximize", "minimize"])
def test_optuna_looks_for_what_the_search_does(goal):
    job = ExecutorSuite().job(Path("unused"), None, trials=1)
    job = replace(job, axes={NAME: Axis(kind="choice", low=0, high=1)}, goal=goal)
    search = searcher(job, [])
    search.suggest("a")
    assert search._ot_study.direction.name.lower() == goal


def test_how_trials_are_chosen_is_told():
    job = replace(
        ExecutorSuite().job(Path("unused"), None, trials=1),
        axes={"a": Axis(kind="choice", low=0, high=1), "b": Axis(kind="float", low=0, high=1)},
    )
    grid = {**job.axes, "a": Axis(kind="choice", low=0, high=1, grid=True)}
    assert algorithm(replace(job, variants=None)) == "tpe"
    assert algorithm(replace(job, variants=({"a": 0, "b": 0.5},))) == "random search"
    assert algorithm(replace(job, variants=({"a": 0, "b": 0.5},), axes=grid)) == "grid search"


def test_a_name_may_have_a_slash():
    assert len(asked(3, name="km/h.encoder.type")) == 3
    begun = [{"name": "0000", "raw": {"km/h": 1}, "state": "finished", "score": 0.5}]
    assert asked(2, begun, name="km/h")[0][0] == "0001"


@pytest.mark.parametrize(
    ("axis", "kind", "ends"),
    [
        (Axis(kind="int", low=2, high=5), "Integer", (2, 6)),  # the end is outside
        (Axis(kind="int", low=2, high=5, log=True), "Integer", (2, 6)),
        (Axis(kind="int", low=2, high=6, step=2), "Integer", (2, 6)),
        (Axis(kind="float", low=0.25, high=8.0), "Float", (0.25, 8.0)),
        (Axis(kind="float", low=0.25, high=8.0, log=True), "Float", (0.25, 8.0)),
        (Axis(kind="float", low=0.25, high=8.0, step=0.25), "Float", (0.25, 8.0)),
    ],
)
def test_an_axis_ends_where_it_did_in_tunes_words(axis, kind, ends):
    domain = _domain(axis)
    assert (type(domain).__name__, (domain.lower, domain.upper)) == (kind, ends)
    assert ("Log" in type(domain.get_sampler()).__name__) is axis.log
    assert getattr(domain.get_sampler(), "q", None) == axis.step


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_end_waits_for_the_end_of_tunes_step(number):
    """Not raised within it, where it got lost in Tune and came again as the results were written;
    nor taken by Tune's own handler."""
    from ray.tune import tune

    ended = []
    with Interrupt() as interrupt, _quiet():
        callback = _callback(lambda *each: ended.append(each), interrupt, Event())
        tune._setup_signal_catching()
        callback.on_step_begin(0, [])
        os.kill(os.getpid(), number)
        callback.on_trial_complete(0, [], SimpleNamespace(config={"number": 0}, last_result={}))
        with pytest.raises(Stopped) as caught:
            callback.on_step_begin(1, [])
        interrupt.asked = False  # it was taken
    assert caught.value.signal == number
    assert ended == [({"number": 0}, None, None)]
