"""Whole runs on a cluster: the same cache and the same training as here, through kills, and an end where they go on."""

import os
import re
import signal
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ray_runs
from ray_runs import LONG, cache, train, weights

from distcore.errors import TrainingError

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def place(nodes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    ray_runs.dataset(folder)
    return folder


@pytest.fixture(scope="module")
def two_here(place):
    """A run of two ranks on this machine that nobody disturbs."""
    return train(place, "two-here", {"type": "local", "trainer": {"type": "ddp", "num_workers": 2}}, LONG)


def killing_rank_one(folder, times):
    """A thread that kills rank 1 of the run in this folder: after the first checkpoint, and as often as it comes back."""

    def kill():
        ray_runs.until(lambda: ray_runs.checkpoints(folder))
        killed = {None}
        for _ in range(times):
            (pid,) = ray_runs.until(lambda: {ray_runs.ranks().get(1)} - killed)
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def test_cache_and_weights_are_those_of_this_machine_also_where_a_rank_is_killed(place, two_here, caplog):
    killer = killing_rank_one(place / "killed_run", 1)
    found = train(place, "killed", {"type": "ray", "trainer": {"num_workers": 2, "max_retries": 2}}, LONG)
    killer.join()
    assert "was killed by SIGKILL. All ranks were started again (1 of at most 2 times)" in caplog.text
    assert cache(place, "killed") == cache(place, "two-here")
    assert weights(found.directory) == weights(two_here.directory)


@pytest.mark.slow
def test_one_config_gives_one_cache_and_one_training_for_any_workers_and_processor(place):
    here = train(place, "here", {"type": "local"})
    expected = cache(place, "here")
    for workers, processor in ((1, "dask"), (2, "modin"), (4, "local")):
        name = f"ray-{workers}"
        trainer = {"num_workers": workers}
        found = train(place, name, {"type": "ray", "processor": {"type": processor}, "trainer": trainer})
        assert cache(place, name) == expected
        for metric in ("loss", "accuracy", "roc_auc"):
            curve = found.training_statistics["validation"]["y"][metric]
            assert curve == pytest.approx(here.training_statistics["validation"]["y"][metric], rel=2e-3), (name, metric)


@pytest.mark.slow
@pytest.mark.parametrize(("retries", "told"), [(0, "Training stopped"), (1, "Training stopped after 1 restart")])
def test_with_no_retry_left_the_error_names_rank_node_signal_and_checkpoint(place, retries, told):
    name = f"over-{retries}"
    killer = killing_rank_one(place / f"{name}_run", 1 + retries)
    with pytest.raises(TrainingError) as caught:
        train(
            place,
            name,
            {"type": "ray", "trainer": {"num_workers": 2, "max_retries": retries}},
            LONG | {"epochs": 100_000},
        )
    killer.join()
    expected = (
        told + r": rank 1 on node [\d.]+ \(process \d+\) was killed by SIGKILL\. "
        r"The last checkpoint is (.*/step-\d{8}); go on from it with --model_resume_path (.*)"
    )
    found = re.fullmatch(expected, str(caught.value))
    assert found, str(caught.value)
    assert found[2] == str(place / f"{name}_run")
    assert Path(found[1]).name == max(ray_runs.checkpoints(place / f"{name}_run"))
    ray_runs.until(lambda: not ray_runs.ranks(), 60)
