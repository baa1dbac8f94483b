"""The suite of extensions blames an extension for what it does, and for nothing else."""

import importlib
import logging
import os
import random
import signal
import sys
import threading
import warnings

import numpy
import pytest
import torch

from distcore_testing import ExtensionSuite
from distcore_testing.extensions import _process
from distcore_testing.installed import lay_metadata

LISTENER = """
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)
work = []

class Listener:
    @hookimpl
    def run_finished(self, command, directory, error):
        work[-1]()

@hookimpl
def distcore_make_extension(name):
    return Listener()
"""


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """The suite for an installed extension that does this at the end of a run."""
    site = tmp_path / "site"
    lay_metadata(site, "listener", {"extensions": {"listener": "listener"}})
    (site / "listener.py").write_text(LISTENER)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "listener", raising=False)

    def made(work):
        importlib.import_module("listener").work.append(work)
        return type("Suite", (ExtensionSuite,), {"name": "listener"})()

    return made


def set_by_another_thread():
    """Whoever owns it runs all the time, and sets variables; this waits until it has."""
    asked.set()
    assert answered.wait(60)
    asked.clear()
    answered.clear()


asked, answered = threading.Event(), threading.Event()


@pytest.fixture
def another(monkeypatch):
    monkeypatch.setenv("OF_OTHERS", "0")
    over = False

    def work():
        for number in range(10**6):
            asked.wait()
            if over:
                return
            asked.clear()
            os.environ["OF_OTHERS"] = f"{number} more"
            answered.set()

    thread = threading.Thread(target=work)
    thread.start()
    yield
    over = True
    asked.set()
    thread.join()


def test_what_other_threads_and_pytest_set_is_not_the_extensions(suite, another, tmp_path):
    def work():
        set_by_another_thread()
        os.environ["PYTEST_CURRENT_TEST"] = f"{os.environ.get('PYTEST_CURRENT_TEST')} again"

    suite(work).test_it_takes_whatever_an_event_may_say(tmp_path)


def by_a_thread():
    thread = threading.Thread(target=os.environ.__setitem__, args=("MINE", "by a thread"))
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    "work",
    [
        lambda: os.environ.__setitem__("MINE", "here"),
        lambda: os.environ.pop("MINE", None),
        by_a_thread,
    ],
)
def test_what_it_sets_itself_is(work, suite, tmp_path, monkeypatch):
    monkeypatch.setenv("MINE", "before")
    with pytest.raises(AssertionError, match="at run_finished it changes the process"):
        suite(work).test_it_takes_whatever_an_event_may_say(tmp_path)


def changes_everything():
    random.seed(1)
    numpy.random.seed(1)
    torch.manual_seed(1)
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    os.chdir("/")
    os.umask(0o007)
    os.environ["MINE"] = "here"
    os.environ.pop("THEIRS")
    sys.path = [*sys.path, "/nowhere"]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    for log in (logging.getLogger(), logging.getLogger("distcore")):
        log.setLevel("CRITICAL")
        log.disabled = True
        log.handlers, log.filters = [], []


def test_what_it_changes_is_put_back_for_the_tests_after_it(suite, tmp_path, monkeypatch):
    monkeypatch.setenv("THEIRS", "before")
    before = _process()
    with pytest.raises(AssertionError, match="at run_finished it changes the process"):
        suite(changes_everything).test_it_takes_whatever_an_event_may_say(tmp_path)
    assert _process() == before
