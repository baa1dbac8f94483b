"""The local executor: how many trials fit, which GPUs each sees, when one ends, and what becomes
of one that cannot begin."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import stubborn_trials

from distcore_core.contracts import BACKEND, Resources
from distcore_core.registry.manager import Plugins
from distcore_optuna import process
from distcore_testing import ExecutorSuite


def suite():
    return type("Suite", (ExecutorSuite,), {"name": "local"})()


def machine(cpus, gpus=0):
    found = Resources(cpus=cpus, gpus=gpus, nodes=1, memory_bytes=1 << 30, workers=1)
    return SimpleNamespace(resources=lambda: found)


def test_ten_tenths_of_a_cpu_are_one(tmp_path):
    """They were nine."""
    job = suite().job(tmp_path, None, trials=20)
    assert suite().make(cpu_resources_per_trial=0.1).plan(job, machine(1))["at_once"] == 10


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


def test_a_trial_whose_rounds_have_no_value_ends_at_max_t(tmp_path):
    """Its loss is NaN: the scheduler hears nothing of it."""
    job = replace(suite().job(tmp_path, suite().variants(1)), function=stubborn_trials.no_value)
    made = suite().make(scheduler={"type": "async_hyperband", "max_t": 3})
    backend = Plugins().make(BACKEND, "local", {})
    made.run(job, backend, lambda name: None)
    (record,) = suite().records(job).values()
    assert (record["state"], record["score"]) == ("stopped", None)
    assert 3 <= record["rounds"] < stubborn_trials.ROUNDS_WITHOUT


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
    assert "'no number'" in (tmp_path / process.LOG).read_text()


def test_a_process_that_was_closed_is_stopped_again_without_an_error(tmp_path):
    """It came over the error for which those that were left were stopped."""
    made = process.TrialProcess({})
    made.start(stubborn_trials.at_its_end, None, "0000", {"folder": str(tmp_path)}, tmp_path)
    made.close()
    process.stop([made])
