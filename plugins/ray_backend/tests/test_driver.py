"""The driver of a worker group on a cluster goes: ctrl-C and SIGKILL leave a whole checkpoint,
no rank, and the same end."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
import ray_runs

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ENDED = 130
"""The exit code of a command that ctrl-C stopped; it and the words are those of the local
backend (tests/test_kills.py)."""

BACKENDS = {
    "cluster": {"type": "ray"},
    "own-cluster": {
        "type": "ray",
        "address": "local",
        "num_cpus": 2,
        "object_store_memory": 100 << 20,
    },
}


@pytest.fixture(scope="module")
def whole(place):
    """A run that nobody disturbed, on this machine: its folder."""
    return ray_runs.train(
        place,
        "whole",
        {"type": "local", "trainer": {"type": "data_parallel", "num_workers": 2}},
        ray_runs.LONG,
    ).directory


def words(place, name, backend, *more):
    """The command line of a run with two workers."""
    config = place / f"{name}.yaml"
    block = {**BACKENDS[backend], "trainer": {"type": "data_parallel", "num_workers": 2}}
    config.write_text(yaml.safe_dump(ray_runs.config_of(place, name, block, ray_runs.LONG)))
    given = ["--config", config, "--dataset", place / "data.csv", "--output_directory", place]
    return [
        sys.executable,
        "-m",
        "distcore.cli.main",
        "train",
        *map(str, [*given, "--experiment_name", name, *more]),
    ]


STARTED = []


@pytest.fixture(autouse=True)
def _none_is_left():
    yield
    for driver in STARTED:
        if driver.poll() is None:
            driver.kill()
            driver.wait()
    STARTED.clear()


def start(place, name, backend="cluster", *more):
    driver = subprocess.Popen(
        words(place, name, backend, *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    STARTED.append(driver)
    return driver


def gone_on(place, name):
    """The folder of the run, after it was resumed and ended."""
    done = start(place, name, "cluster", "--model_resume_path", place / f"{name}_run")
    out, err = done.communicate(timeout=600)
    assert done.returncode == 0, out + err
    assert re.search(r"Going on after step \d+", out + err)
    return place / f"{name}_run"


@pytest.mark.parametrize("backend", BACKENDS)
def test_ctrl_c_saves_a_checkpoint_and_says_how_to_go_on(place, whole, backend):
    """A terminal's, which every process of the group hears. What goes on ends with the bits of
    an undisturbed run."""
    name = f"stopped-{backend}"
    driver = start(place, name, backend)
    ray_runs.until(lambda: ray_runs.checkpoints(place / f"{name}_run") or driver.poll() is not None)
    os.killpg(driver.pid, signal.SIGINT)
    out, err = driver.communicate(timeout=600)
    assert driver.returncode == ENDED, out + err
    assert "Traceback" not in out + err
    found = re.search(
        r"Stopped after step (\d+)\. Go on from there with --model_resume_path (\S+)", out + err
    )
    assert found, out + err
    assert Path(found[2]) == place / f"{name}_run"
    assert f"step-{int(found[1]):08d}" in ray_runs.checkpoints(place / f"{name}_run")
    assert "distcore: stopped by ctrl-C." in err
    ray_runs.until(lambda: not ray_runs.ranks(), 60)
    assert ray_runs.weights(gone_on(place, name)) == ray_runs.weights(whole)


def test_a_second_ctrl_c_does_not_wait(place):
    """The ranks stand still, so no checkpoint comes; they end all the same."""
    driver = start(place, "twice")
    ray_runs.until(lambda: ray_runs.checkpoints(place / "twice_run") or driver.poll() is not None)
    stopped = ray_runs.ranks()
    for pid in stopped.values():
        os.kill(pid, signal.SIGSTOP)
    before = ray_runs.checkpoints(place / "twice_run")
    for _ in range(2):
        driver.send_signal(signal.SIGINT)
        time.sleep(3)
    out, err = driver.communicate(timeout=300)
    assert driver.returncode == ENDED, out + err
    assert "Press ctrl-C again" in out + err
    assert ray_runs.checkpoints(place / "twice_run") == before
    ray_runs.until(lambda: not ray_runs.ranks(), 60)


def test_after_sigkill_of_the_driver_its_ranks_end_by_themselves(place, whole):
    driver = start(place, "killed")
    ray_runs.until(lambda: ray_runs.checkpoints(place / "killed_run") or driver.poll() is not None)
    assert sorted(ray_runs.ranks()) == [0, 1]
    driver.kill()
    driver.communicate(timeout=60)
    ray_runs.until(lambda: not ray_runs.ranks(), 120)
    time.sleep(1)
    assert not ray_runs.ranks(), "nobody starts them again"
    assert not (place / "killed_run" / "model").exists()
    assert ray_runs.weights(gone_on(place, "killed")) == ray_runs.weights(whole)
