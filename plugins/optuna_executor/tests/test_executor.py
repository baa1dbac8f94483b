"""The local executor: how many trials fit, which GPUs each sees, when one ends, and what becomes
of one that cannot begin."""

import errno
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import optuna
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import stubborn_trials

from distcore_core.contracts import BACKEND, Axis, Resources
from distcore_core.errors import UserError
from distcore_core.registry.manager import Plugins
from distcore_optuna import executor, process
from distcore_optuna.options import LocalOptions
from distcore_optuna.study import pruner
from distcore_search.objective import Objective
from distcore_search.records import LOG, SearchWork, begin_again, begin_record, read_record
from distcore_testing import ExecutorSuite
from distcore_testing.rank_jobs import until


def suite():
    return type("Suite", (ExecutorSuite,), {"name": "local"})()


def machine(cpus, gpus=0, distributed=False):
    found = Resources(cpus=cpus, gpus=gpus, nodes=1, memory_bytes=1 << 30, workers=1)
    return SimpleNamespace(resources=lambda: found, distributed=distributed)


def test_ten_tenths_of_a_cpu_are_one(tmp_path):
    """They were nine."""
    job = suite().job(tmp_path, None, trials=20)
    assert suite().make(cpu_resources_per_trial=0.1).plan(job, machine(1))["at_once"] == 10


@pytest.mark.parametrize(
    ("sampler", "algorithm", "grid", "told"),
    [
        ("gp", {"type": "optuna"}, False, "sampler: gp changes nothing.*chosen by tpe"),
        ("gp", {"type": "variant_generator"}, True, "sampler: gp changes nothing.*by grid search"),
        ("tpe", {"type": "random"}, False, "sampler: tpe changes nothing.*chosen by random search"),
        ("random", {"type": "random"}, False, None),
        ("tpe", {"type": "optuna"}, False, None),
        ("auto", {"type": "variant_generator"}, True, None),
        ("random", {}, False, None),
    ],
)
def test_a_sampler_that_does_not_choose_is_told(tmp_path, sampler, algorithm, grid, told):
    """It was passed over without a word."""
    known = (
        suite().variants(4) if algorithm.get("type") in ("variant_generator", "random") else None
    )
    job = suite().job(tmp_path, known, algorithm=algorithm)
    if grid:
        job = replace(job, axes={"a": Axis(kind="choice", low=0, high=3, grid=True)})
    notes = suite().make(sampler=sampler).plan(job, machine(4))["notes"]
    assert re.search(told, *notes) if told else notes == []


@pytest.mark.parametrize(
    ("there", "asked", "at_once", "seen"),
    [
        # 16 trials of eight threads each ran at once
        ((16, 0), {"resources_per_worker": {"CPU": 8}}, 2, {"OMP_NUM_THREADS": "8"}),
        ((4, 0), {"resources_per_worker": {"CPU": 8}}, 1, {"OMP_NUM_THREADS": "8"}),
        # one trial ran at once, on the CPU, for there is one GPU
        ((16, 1), {}, 16, {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}),
        ((16, 1), {"use_gpu": True}, 1, {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "0"}),
        ((16, 0), {"use_gpu": True}, 16, {"OMP_NUM_THREADS": "1"}),
        # a part of a GPU was not read, though it is where workers are their trial's
        (
            *((16, 1), {"use_gpu": True, "resources_per_worker": {"GPU": 0.25}}, 4),
            {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "0"},
        ),
        (
            *((16, 1), {"use_gpu": True, "resources_per_worker": {"GPU": 2}}, 1),
            {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "0"},
        ),
    ],
)
def test_a_trial_has_what_its_trainer_asks_for(tmp_path, monkeypatch, there, asked, at_once, seen):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    job, made = suite().job(tmp_path, None, trials=20, **asked), suite().make()
    assert made.plan(job, machine(*there))["at_once"] == at_once
    assert made.environment(job, 0, there[1]) == seen
    stated = suite().make(cpu_resources_per_trial=4, gpu_resources_per_trial=0)
    assert stated.plan(job, machine(*there))["at_once"] == there[0] // 4


def test_what_is_given_for_a_trial_is_of_all_its_workers(tmp_path, monkeypatch):
    """It was for each: of 8 CPUs, with 4 for a trial of two workers, one trial had room; and two
    GPUs for two workers, which the executor ray asks for, were four."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    job = suite().job(tmp_path, None, trials=20, workers=2)
    made = suite().make(cpu_resources_per_trial=4)
    assert made.plan(job, machine(8))["at_once"] == 2
    assert made.environment(job, 0, 0) == {"OMP_NUM_THREADS": "2"}
    assert suite().make().plan(job, machine(8))["at_once"] == 4
    job = replace(job, use_gpu=True)
    made = suite().make(gpu_resources_per_trial=2)
    assert made.plan(job, machine(8, gpus=4))["at_once"] == 2
    assert made.environment(job, 1, 4)["CUDA_VISIBLE_DEVICES"] == "2,3"
    with pytest.raises(UserError, match=r"needs 3 GPUs, but there are 2\. Lower it"):
        suite().make(gpu_resources_per_trial=3).plan(job, machine(8, gpus=2))
    with pytest.raises(UserError, match=r"is 1, but a trial has 2 workers.*Make it 2, or leave"):
        suite().make(gpu_resources_per_trial=1).plan(job, machine(8, gpus=4))


@pytest.mark.parametrize(
    "given", [{}, {"gpu_resources_per_trial": 1}, {"gpu_resources_per_trial": 2}]
)
def test_more_workers_than_gpus_are_refused_in_words_that_help(tmp_path, given):
    """With 2 it was to be lowered, with 1 to be 2 or left out, and left out both had one GPU."""
    job = suite().job(tmp_path, None, trials=20, workers=2, use_gpu=True)
    with pytest.raises(UserError, match=r"^2 workers cannot have a GPU each.*num_workers to 1 or"):
        suite().make(**given).plan(job, machine(8, gpus=1))
    if not given:  # a cluster grows, and its workers may ask for a share of one
        suite().make(**given).plan(job, machine(8, gpus=1, distributed=True))


@pytest.mark.parametrize(("gpus", "given"), [(0, {}), (1, {"gpu_resources_per_trial": 0}), (2, {})])
def test_workers_without_a_gpu_or_with_one_each_are_not_refused(tmp_path, gpus, given):
    job = suite().job(tmp_path, None, trials=20, workers=2, use_gpu=True)
    at_once = suite().make(**given).plan(job, machine(8, gpus=gpus))["at_once"]
    assert at_once == (1 if gpus == 2 else 4)


@pytest.mark.parametrize(
    ("share", "seen"),
    [
        (0.3, ["0", "0", "0", "1", "1", "1"]),  # the fourth was on 0, too
        (0.4, ["0", "0", "1", "1"]),  # there was a fifth, on a half of each
        (1, ["0", "1"]),
        (2, ["0,1"]),
    ],
)
def test_trials_that_share_a_gpu_have_room_on_it(tmp_path, monkeypatch, share, seen):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    job, made = suite().job(tmp_path, None, trials=20), suite().make(gpu_resources_per_trial=share)
    at_once = made.plan(job, machine(64, gpus=2))["at_once"]
    given = [made.environment(job, slot, 2)["CUDA_VISIBLE_DEVICES"] for slot in range(at_once)]
    assert given == seen


@pytest.mark.parametrize("factor", [2, 3, 4, 5, 10])
@pytest.mark.parametrize("grace", [1, 7])
@pytest.mark.parametrize("brackets", [2, 3, 5, 6, 64])
def test_there_are_as_many_brackets_as_asked_for(brackets, grace, factor):
    """There were as many as `max_t` has levels, whatever the number."""
    asked = {"reduction_factor": factor, "grace_period": grace, "brackets": brackets}
    options = LocalOptions.model_validate({"scheduler": {"type": "asha", **asked}})
    study = optuna.create_study(pruner=pruner(options))
    trial = study.ask()
    trial.report(1.0, 1)
    assert not trial.should_prune()
    made = study.pruner._pruners
    assert [each._min_early_stopping_rate for each in made] == list(range(brackets))
    assert {(each._min_resource, each._reduction_factor) for each in made} == {(grace, factor)}


def test_a_trial_whose_rounds_have_no_value_ends_at_max_t(tmp_path):
    """Its loss is NaN: the scheduler hears nothing of it."""
    job = replace(suite().job(tmp_path, suite().variants(1)), function=stubborn_trials.no_value)
    made = suite().make(scheduler={"type": "async_hyperband", "max_t": 3})
    backend = Plugins().make(BACKEND, "local", {})
    made.run(job, backend, lambda name: None)
    (record,) = suite().records(job).values()
    assert (record["state"], record["score"]) == ("stopped", None)
    assert 3 <= record["rounds"] < stubborn_trials.ROUNDS_WITHOUT


@pytest.mark.parametrize(
    ("given", "stopped"),
    [(None, True), ({"early_stop": -1}, True), ({"early_stop": -1, "epochs": 3}, False)],
)
@pytest.mark.parametrize("bad", [True, False])
def test_a_trial_whose_epochs_end_at_max_t_is_not_stopped_there(given, stopped, bad):
    """It was as it ended by itself: its process was lost, and its model made a second time."""
    loop = object.__new__(executor._Loop)
    scheduler = {"type": "asha", "max_t": 3}
    loop.executor = SimpleNamespace(options=LocalOptions.model_validate({"scheduler": scheduler}))
    loop.job = SimpleNamespace(work=SimpleNamespace(given=given))
    loop.objective = SimpleNamespace(of_round=lambda metrics: 0.5)
    loop.study = SimpleNamespace(report=lambda *_: bad)
    rounds = [SimpleNamespace(metrics={}, number=number, seconds=0.1) for number in (2, 3)]
    assert [loop._report(None, each) for each in rounds] == [bad, stopped]


class Unreadable:
    """Pickles, and raises where it is read."""

    def __reduce__(self):
        return int, ("no number",)


def test_a_trial_whose_work_cannot_be_read_fails_in_its_own_words(tmp_path):
    """It was waited for without an end."""
    made = process.TrialProcess({})
    try:
        made.start(Unreadable(), None, "0000", {}, tmp_path)
        end = time.monotonic() + 60
        while made.running():
            assert time.monotonic() < end
            time.sleep(0.01)
        assert made.how_it_ended() == "its process ended with exit code 1"
    finally:
        made.close()
    assert "'no number'" in (tmp_path / LOG).read_text()


@pytest.mark.parametrize(("number", "refused"), [(errno.ENOSPC, True), (errno.ENOENT, False)])
def test_a_trial_whose_record_the_system_refused_is_gone_on_with(tmp_path, number, refused):
    """It had trained to its end, and was failed for good."""
    work = SearchWork(
        parameters={"trainer.learning_rate": {"space": "uniform", "lower": 0.1, "upper": 1.0}},
        objective=Objective("y", "loss", "minimize"),
        directory=tmp_path,
    )
    folder = work.folder("0000")
    begin_record(work, "0000", {"trainer.learning_rate": 0.5})
    made = process.TrialProcess({})
    made.start(stubborn_trials.refused, number, "0000", {}, folder)
    until(lambda: not made.running())
    loop = object.__new__(executor._Loop)
    loop.running, loop.job = [], SimpleNamespace(work=work)
    loop.objective, loop.told, loop.idle = work.objective, lambda name: None, {}
    loop.study = SimpleNamespace(tell=lambda *_: None)
    each = executor.Running(None, "0000", made, None, 0)
    loop.running.append(each)
    loop._end(each)
    assert read_record(folder)["state"] == "failed"
    assert begin_again(work) == (["0000"] if refused else [])


def test_a_process_that_was_closed_is_stopped_again_without_an_error(tmp_path):
    """It came over the error for which those that were left were stopped."""
    made = process.TrialProcess({})
    made.start(stubborn_trials.at_its_end, None, "0000", {"folder": str(tmp_path)}, tmp_path)
    made.close()
    process.stop([made])


@pytest.mark.parametrize("first", ["project", ""])
def test_a_trial_imports_what_the_driver_does(tmp_path, monkeypatch, first):
    """A module beside the program, where the working folder has one of that name, or in that folder
    itself, of an interactive program."""
    for name in ("project", "working"):
        (tmp_path / name).mkdir()
        text = (
            f"from pathlib import Path\ndef run(work, name, raw): Path(work).write_text({name!r})"
        )
        (tmp_path / name / "trial_of_two.py").write_text(text)
    monkeypatch.chdir(tmp_path / "working")
    monkeypatch.setattr(sys, "path", [first and str(tmp_path / first), *sys.path])
    monkeypatch.delitem(sys.modules, "trial_of_two", raising=False)
    import trial_of_two

    made = process.TrialProcess({})
    try:
        made.start(trial_of_two.run, str(tmp_path / "said"), "0000", {}, tmp_path)
        while made.running():
            time.sleep(0.01)
    finally:
        made.close()
    assert (tmp_path / "said").read_text() == (first or "working")
    del sys.modules["trial_of_two"]


def test_a_trial_has_a_launchers_settings_and_not_its_rank(tmp_path, monkeypatch):
    monkeypatch.setenv("HOROVOD_RANK", "0")
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "0")
    made = process.TrialProcess({})
    try:
        made.start(stubborn_trials.environment, None, "0000", {}, tmp_path)
        while made.running():
            time.sleep(0.01)
    finally:
        made.close()
    names = (tmp_path / LOG).read_text().split()
    assert "HOROVOD_FUSION_THRESHOLD" in names
    assert "HOROVOD_RANK" not in names
