"""A search that a disk or the system's limits end says how to go on with it."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from distcore.search import driver
from distcore_core.errors import DistcoreError, TrainingError, UserError


def of(number):
    return OSError(number, os.strerror(number))


def failing(error):
    def fails(*_):
        raise error

    return fails


def nothing(*_, **__):
    pass


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "concluded"),
    [
        (of(errno.EMFILE), TrainingError, True),
        (of(errno.ENOMEM), TrainingError, True),
        (caused(of(errno.ENOENT), of(errno.EACCES)), TrainingError, True),
        (caused(UserError("It may not be written."), of(errno.EACCES)), UserError, True),
        (DistcoreError("The cluster is gone."), DistcoreError, True),
        (UserError("A mistake."), UserError, False),
        (of(errno.ENOENT), FileNotFoundError, False),
    ],
    ids=repr,
)
def test_what_ends_a_search(monkeypatch, error, kind, concluded):
    ends = []
    monkeypatch.setattr(driver, "conclude", lambda *_: ends.append(True))
    with pytest.raises(kind) as caught:
        searched(monkeypatch, failing(error))
    assert bool(ends) is concluded
    said = str(caught.value)
    assert ("--model_resume_path results/hyperopt" in said) is concluded
    assert "same command" not in said


@pytest.mark.parametrize("run", [failing(of(errno.EMFILE)), failing(KeyboardInterrupt()), nothing])
def test_what_the_end_of_a_search_is_refused(monkeypatch, run):
    monkeypatch.setattr(driver, "conclude", failing(of(errno.EMFILE)))
    with pytest.raises(TrainingError, match=r"ulimit.*--model_resume_path results/hyperopt"):
        searched(monkeypatch, run)
    monkeypatch.setattr(driver, "conclude", failing(of(errno.ENOENT)))
    with pytest.raises(FileNotFoundError):
        searched(monkeypatch, nothing)


def searched(monkeypatch, run):
    monkeypatch.setattr(driver, "begin_again", lambda _: [])
    monkeypatch.setattr(driver, "collect", lambda _: [])
    search = object.__new__(driver.Search)
    search.section = SimpleNamespace(written={})
    search.values, search.skip = {"random_seed": 1}, ()
    search.session = SimpleNamespace(
        backend=None, progress=SimpleNamespace(begin=nothing, end=nothing)
    )
    search.executor = SimpleNamespace(run=run)
    search._told = lambda work: None
    search._run_trials(SimpleNamespace(trials=3), None, Path("results/hyperopt"))
