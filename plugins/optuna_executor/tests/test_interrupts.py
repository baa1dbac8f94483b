"""A ctrl-C that comes where an exception would be lost: the driver stops all the same, and its
trials end."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import stubborn_trials

from distcore_core.contracts import BACKEND
from distcore_core.registry.manager import Plugins
from distcore_optuna import process
from distcore_search.records import LOG
from distcore_testing import ExecutorSuite


class _Interrupting:
    """ctrl-C while its destructor runs: a KeyboardInterrupt would be printed there, and lost."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_ctrl_c_in_a_destructor_is_not_lost(tmp_path):
    suite = type("Suite", (ExecutorSuite,), {"name": "local"})()
    job, told = suite.job(tmp_path, suite.variants(8)), []

    def tell(name):
        told.append(name)
        if len(told) == 1:
            each = _Interrupting()
            del each

    backend = Plugins().make(BACKEND, "local", {})
    with pytest.raises(KeyboardInterrupt):
        suite.make(max_concurrent_trials=1).run(job, backend, tell)
    assert len(told) == 1


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """begun(function): a trial's process, once the trial stands where it is to be stopped;
    nobody loses patience."""
    monkeypatch.setattr(process, "PATIENCE_SECONDS", 1e9)
    made = []

    def start(function, **raw):
        made.append(process.TrialProcess({}))
        made[0].start(function, None, "0000", {"folder": str(tmp_path), **raw}, tmp_path)
        stubborn_trials.until(tmp_path / "begun")
        return made[0]

    yield start
    for each in made:
        each.close()


def test_a_trial_that_is_asked_to_stop_in_a_destructor_ends(begun):
    asked = begun(stubborn_trials.in_a_destructor)
    process.stop([asked])
    assert not asked.alive()


def test_a_trial_that_is_at_its_end_when_it_is_asked_is_waited_for_and_no_longer(begun, tmp_path):
    asked = begun(stubborn_trials.at_its_end)
    threading.Timer(0.5, (tmp_path / "go on").touch).start()
    process.stop([asked])
    assert not asked.alive()


def test_what_a_killed_trial_left_among_the_temporary_files_is_gone(begun, tmp_path):
    killed = begun(stubborn_trials.leaves_files)
    left = Path((tmp_path / "temporary").read_text())
    assert left.is_dir()
    killed.close()
    assert not left.exists()
    assert not left.parent.exists()


DRIVER = """
import sys, time
from pathlib import Path
import stubborn_trials
from distcore_optuna.process import TrialProcess

folder = Path(sys.argv[1])
trial = TrialProcess({})
trial.start(stubborn_trials.starts_another, None, "0000", {"folder": str(folder)}, folder)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux wakes a child")
def test_a_stopped_trial_ends_with_its_driver(tmp_path):
    """It stood there for ever, with its memory and its processes."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    words = [sys.executable, "-c", DRIVER, str(tmp_path)]
    driver = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": path})
    try:
        stubborn_trials.until(tmp_path / "begun")
        trial = psutil.Process(int((tmp_path / "begun").read_text()))
        processes = [trial, *trial.children()]
        trial.suspend()
    finally:
        driver.kill()
        driver.wait()
    _, left = psutil.wait_procs(processes, timeout=60)
    for each in left:
        each.kill()
    assert not left


@pytest.mark.parametrize(("given", "code"), [(3, 3), (None, 0), ("no licence", 1)])
def test_a_trial_that_ends_its_process_says_its_own_exit_code(begun, tmp_path, given, code):
    """It said SIGABRT."""
    left = begun(stubborn_trials.leaves, **{"with": given})
    while left.running():
        time.sleep(0.01)
    assert left.how_it_ended() == f"its process ended with exit code {code}"
    if code == 1:
        assert "no licence" in (tmp_path / LOG).read_text()
