"""A driver may be killed at any write of the journal: whoever goes on asks for the same trials."""

import errno
import os
import shutil
import time
from dataclasses import replace

import pytest

from distcore_core.contracts import BACKEND, Axis, SearchJob
from distcore_core.errors import CheckpointError, TrainingError, UserError
from distcore_core.registry.manager import Plugins
from distcore_optuna.journal import SealedJournal
from distcore_optuna.options import LocalOptions
from distcore_optuna.process import TrialProcess
from distcore_optuna.study import JOURNAL, STARTUP, Study
from distcore_search.objective import Objective
from distcore_search.records import LOG, TRIALS, SearchWork, write_record
from distcore_testing import ExecutorSuite

COUNT = STARTUP + 2
"""Some that TPE draws from its model of those before."""

AXES = {
    "a": Axis(kind="float", low=0.001, high=0.1, log=True),
    "b": Axis(kind="choice", low=0, high=3),
    "c": Axis(kind="int", low=1, high=9),
}


class Killed(BaseException):
    """What a driver hears of a SIGKILL: nothing."""


def job(folder):
    return SearchJob(
        function=None, work=None, axes=AXES, variants=None, trials=COUNT, goal="maximize", directory=folder, seed=7,
        points=({"a": 0.01, "b": 1, "c": 3},),
    )  # fmt: skip


def searched(folder):
    """Run the search's trials one after another, with their records; their parameters. A trial
    that was begun is gone on with."""
    study = Study(job(folder), LocalOptions())
    begun = iter(study.begun())
    while True:
        trial = next(begun, None)
        if trial is None:
            if study.count() >= COUNT:
                break
            trial = study.ask()
        name, record = f"{trial.number:04d}", {"raw": trial.params}
        write_record(folder / TRIALS / name, {"name": name, **record, "state": "running"})
        study.report(trial, trial.params["a"], 1)
        score = trial.params["a"] * (1 + trial.params["b"]) / trial.params["c"]
        write_record(
            folder / TRIALS / name, {"name": name, **record, "state": "finished", "score": score}
        )
        study.tell(trial, "finished", score)
    return [(each.number, each.params, each.values) for each in study.study.get_trials()]


@pytest.mark.system
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_write_the_same_trials_are_asked(tmp_path, monkeypatch, step):
    whole = tmp_path / "whole"
    whole.mkdir()
    expected = searched(whole)
    assert [number for number, _, _ in expected] == list(range(COUNT))
    write = SealedJournal.append_logs
    left = 0

    def killed(self, logs):
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        write(self, logs)

    killed_at, ended = 0, False
    folder = tmp_path / "killed"
    while not ended:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        left = killed_at
        monkeypatch.setattr(SealedJournal, "append_logs", killed)
        try:
            searched(folder)
            ended = True
        except Killed:
            monkeypatch.setattr(SealedJournal, "append_logs", write)
            assert searched(folder) == expected, f"killed at write {killed_at}"
        killed_at += step
    assert killed_at > 3 * COUNT


def killed_within(journal):
    with journal.whole():
        journal.append_logs([{"n": 3}])
        raise Killed


def test_a_last_line_that_a_kill_cut_short_is_dropped_and_told(tmp_path, caplog):
    path, made = tmp_path / JOURNAL, {"op_code": 0}
    SealedJournal(path).append_logs([made])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-1])
    journal = SealedJournal(path)
    assert f"The last line of {path} was cut short by a kill, and is dropped." in caplog.messages
    assert path.read_bytes() == whole
    journal.append_logs([made])
    assert list(journal.read_logs(0)) == [made, made]


def test_what_is_written_in_one_piece_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / JOURNAL
    journal = SealedJournal(path)
    journal.append_logs([{"n": 0}])
    assert list(journal.read_logs(0)) == [{"n": 0}]
    with journal.whole():
        journal.append_logs([{"n": 1}])
        journal.append_logs([{"n": 2}])
        assert list(journal.read_logs(2)) == [{"n": 2}]
        assert path.read_text().count("\n") == 1
    assert list(journal.read_logs(1)) == [{"n": 1}, {"n": 2}]
    with pytest.raises(Killed):
        killed_within(journal)
    assert list(SealedJournal(path).read_logs(0)) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_full_disk_leaves_no_part_of_what_belongs_together(tmp_path, monkeypatch):
    """A trial stayed with one of its parameters, and the search could not be gone on with."""
    study = Study(job(tmp_path), LocalOptions())
    study.ask()
    before = study.path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(TrainingError, match=f"no room for {JOURNAL} in .*or go on with a copy"):
            study.ask()
    assert study.path.read_bytes() == before
    again = Study(job(tmp_path), LocalOptions())
    assert [each.number for each in again.begun()] == [0]
    assert again.ask().number == 1


def test_a_trial_with_a_part_of_its_parameters_is_asked_again(tmp_path, caplog):
    work = SearchWork(
        parameters={}, objective=Objective("y", "loss", "minimize"), directory=tmp_path
    )
    made = replace(job(tmp_path), work=work)
    study = Study(made, LocalOptions())
    first = study.ask().params
    write_record(tmp_path / TRIALS / "0000", {"name": "0000", "raw": first, "state": "running"})
    second = study.ask().params
    lines = study.path.read_bytes().splitlines(keepends=True)
    study.path.write_bytes(b"".join(lines[:-1]))  # without its last parameter
    again = Study(made, LocalOptions())
    assert "trial 0001 has only some of its parameters there" in caplog.text
    assert [each.params for each in again.begun()] == [first]
    assert again.ask().params == second
    caplog.clear()
    assert len(Study(made, LocalOptions()).begun()) == 2
    assert "made anew" not in caplog.text


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_or_a_folder_in_its_place_is_refused(tmp_path, make):
    """The search waited for its first byte for ever."""
    make(tmp_path / JOURNAL)
    with pytest.raises(UserError, match=f"{JOURNAL} is damaged.*Remove it and go on"):
        Study(job(tmp_path), LocalOptions())


@pytest.mark.parametrize("harm", ["said twice", "cut short", "without its last line", "gone"])
def test_a_journal_that_others_change_meanwhile_ends_the_search_in_words(tmp_path, harm):
    """Its records make it anew, and the search ends as if nothing had been."""
    suite = type("Suite", (ExecutorSuite,), {"name": "local"})()
    job, told = suite.job(tmp_path, suite.variants(3)), []
    path = job.directory / JOURNAL

    def tell(name):
        told.append(name)
        if len(told) == 1:
            lines = path.read_bytes().splitlines(keepends=True)
            left = {
                "said twice": [*lines, lines[-1]],
                "cut short": lines[:2],
                "without its last line": lines[:-1],
            }
            path.unlink()
            if harm in left:
                path.write_bytes(b"".join(left[harm]))

    backend = Plugins().make(BACKEND, "local", {})
    words = f"{JOURNAL} is damaged, or was changed.*Go on with the search \\(--model_resume_path .*made anew"
    with pytest.raises(CheckpointError, match=words):
        suite.make(max_concurrent_trials=1).run(job, backend, tell)
    suite.make(max_concurrent_trials=1).run(job, backend, told.append)
    assert told == ["0000", "0001", "0002"]


def test_links_in_a_searchs_folder_leave_what_they_lead_to(tmp_path, caplog):
    """A search of somebody else that is gone on with: the file behind one was emptied."""
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"\x00 mine")
    (folder := tmp_path / "search").mkdir()
    (folder / JOURNAL).symlink_to(theirs)
    searched(folder)
    assert "study.journal is made anew from the trials' records: it is a link" in caplog.text
    assert not (folder / JOURNAL).is_symlink()
    (folder / LOG).symlink_to(theirs)
    process = TrialProcess({})
    try:
        process.start(print, "work", "1", {}, folder)
        while process.running():
            time.sleep(0.05)
    finally:
        process.close()
    assert "work" in (folder / LOG).read_text()
    assert theirs.read_bytes() == b"\x00 mine"
