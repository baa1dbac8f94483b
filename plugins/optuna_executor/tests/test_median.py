"""The median stopping rule by rounds and by seconds, at which no two trials tell anything."""

import optuna
import pytest

from distcore_core.contracts import Axis, SearchJob
from distcore_optuna.options import LocalOptions
from distcore_optuna.study import Study
from distcore_search.options import MedianStopping
from distcore_search.rounds import Round


def study(folder, goal="minimize", **options):
    """Of two trials that finished: at 10, 20 and 30 with 0.5, 0.4, 0.3; at 11, 21 and 31 a tenth
    better."""
    scheduler = {"type": "median_stopping_rule", "grace_period": 15, "min_samples_required": 2}
    job = SearchJob(
        function=None, work=None, axes={"a": Axis(kind="float", low=0, high=1)}, variants=None, trials=9, goal=goal,
        directory=folder, seed=7,
    )  # fmt: skip
    found = Study(job, LocalOptions(scheduler={**scheduler, **options}))
    sign = 1 if goal == "minimize" else -1
    for first, better in ((10, 0), (11, 0.1)):
        trial = found.ask()
        for time in (0, 10, 20):
            found.report(trial, sign * (0.5 - time / 100 - better), first + time)
        found.tell(trial, "finished", 0)
    found.tell(found.ask(), "finished", 0)  # which told no round
    return found


@pytest.mark.parametrize(("goal", "sign"), [("minimize", 1), ("maximize", -1)])
def test_by_seconds_it_stops_what_is_worse_than_the_others_had_by_then(tmp_path, goal, sign):
    """It compared trials at one whole second alone, so it hardly stopped any."""
    found = study(tmp_path, goal)
    # By second 25 the others had told 0.4 and 0.3 last.
    assert found.report(found.ask(), sign * 0.36, 25)
    assert not found.report(found.ask(), sign * 0.34, 25)
    known = found.ask()
    assert not found.report(known, sign * 0.1, 12)
    assert not found.report(known, sign * 0.9, 25)  # its best value counts


def test_not_before_its_time_nor_beside_too_few(tmp_path):
    found = study(tmp_path)
    assert not found.report(found.ask(), 9, 14)  # the grace period
    assert not found.report(found.ask(), 9, 31)  # one had ended by then
    (tmp_path / "3").mkdir()
    three = study(tmp_path / "3", min_samples_required=3)
    assert not three.report(three.ask(), 9, 25)


def test_by_rounds_it_is_optunas(tmp_path):
    """Where all trials have the same rounds, Optuna's own rule says the same."""
    found = study(tmp_path, time_attr="training_iteration", grace_period=1)
    theirs = optuna.pruners.MedianPruner(n_startup_trials=1, n_warmup_steps=1)
    for _ in range(5):
        trial = found.ask()
        for time in (1, 2, 3):
            trial.report((0.9 * trial.number + time) % 1, time)
        found.tell(trial, "finished", 0)
    for start in (0.05, 0.3, 0.5, 0.7, 0.95):
        trial = found.ask()
        for time in (1, 2, 3):
            stopped = found.report(trial, start, time)
            frozen = found.study.get_trials(deepcopy=False)[trial.number]
            assert stopped == theirs.prune(found.study, frozen), (start, time)


@pytest.mark.parametrize(("clock", "time"), [("training_iteration", 3), ("time_total_s", 41)])
def test_the_time_of_a_round_is_by_the_schedulers_clock(tmp_path, clock, time):
    found = study(tmp_path, time_attr=clock)
    assert found.options.scheduler.time(Round(number=3, step=9, seconds=41.8, metrics={})) == time
    assert MedianStopping(type="median_stopping_rule").time_attr == "time_total_s"
