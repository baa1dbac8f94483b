"""Worker groups and tasks of this machine: what is retried and what is not, and that nobody is
left behind."""

import errno
import os
import signal
import sys
import tempfile
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import worker_group_jobs
from test_backend import started, wait_for

from distcore_core.contracts import WorkerGroup
from distcore_core.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DistcoreError,
    TrainingError,
)
from distcore_data.os_errors import is_of_the_system
from distcore_local import tasks, worker_group
from distcore_local.backend import LocalBackend
from distcore_local.options import BackendOptions
from distcore_testing.loops import TinyRun

pytestmark = pytest.mark.system


def run(function, *arguments, ranks=2, **more):
    return LocalBackend(BackendOptions()).run_group(
        WorkerGroup(function=function, arguments=arguments, ranks=ranks, threads=1, **more)
    )


def test_ranks_are_children_of_ours_that_are_told_no_address():
    found = run(worker_group_jobs.who)
    assert {parent for _, parent, _ in found} == {os.getpid()}
    assert [addresses for _, _, addresses in found] == [[], []]
    for process, _, _ in found:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_an_error_of_ours_is_raised_as_itself_after_one_attempt(tmp_path):
    with pytest.raises(
        ConfigError, match=r"(?s)config\.yaml: 1 mistake.*line 3: trainer: is odd"
    ) as caught:
        run(worker_group_jobs.raise_ours, tmp_path, max_retries=3)
    assert caught.value.issues[0].line == 3
    tried = (tmp_path / "attempts").read_text().split()
    assert len(tried) == len(set(tried)), "a rank was started again"


def test_another_error_is_met_once_more_and_the_restart_is_told(tmp_path, caplog):
    assert run(worker_group_jobs.raise_once, tmp_path, max_retries=1) == [0, 1]
    assert (
        "ConnectionResetError: a disk blinked. All ranks were started again (1 of at most 1 times)"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("told", "error", "words"),
    [
        (True, CheckpointError, "There is no room for the checkpoint in /dev"),
        (False, TrainingError, "raised OSError: .*No space left on device"),
    ],
)
def test_what_a_disk_did_to_a_rank_is_the_cause_of_what_is_raised(told, error, words):
    """So a trial that it ended is gone on with, as one of a single process is."""
    with pytest.raises(error, match=words) as caught:
        run(worker_group_jobs.meet_a_full_disk, told)
    assert is_of_the_system(caught.value)
    assert caught.value.__cause__.errno == errno.ENOSPC


def test_a_disk_without_room_for_the_ranks_to_meet_is_told_before_any_starts(tmp_path, monkeypatch):
    """torch said that no space was left, of no folder, and the ranks were started three times
    more."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    started = []
    monkeypatch.setattr(worker_group.SpawnProcess, "start", started.append)
    written = Path.write_bytes

    def full(path, content):
        if path.name == "room":
            written(path, content[:1])
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(TrainingError, match="no room for the file where the ranks meet") as caught:
        run(worker_group_jobs.who, max_retries=3)
    assert f" in {tmp_path}/distcore-group-" in str(caught.value)
    assert "point TMPDIR to a larger disk" in str(caught.value)
    assert (started, list(tmp_path.iterdir())) == ([], [])


def test_another_error_of_a_rank_is_not_the_systems(tmp_path):
    with pytest.raises(TrainingError, match="a disk blinked") as caught:
        run(worker_group_jobs.raise_once, tmp_path)
    assert not is_of_the_system(caught.value)


def test_a_result_that_cannot_travel_is_told(tmp_path):
    with pytest.raises(
        TrainingError, match=r"rank 0 \(process \d+\) raised its result cannot travel"
    ):
        run(worker_group_jobs.unpicklable, ranks=1)


ORPHANS = """
import sys, worker_group_jobs
from test_backend import *
if __name__ == "__main__":
    backend().run_group(WorkerGroup(function=worker_group_jobs.note_and_wait, arguments=(sys.argv[1],), ranks=2))
"""


@pytest.mark.parametrize("stopped", [None, 1, 0])
def test_ranks_end_with_the_process_that_started_them(tmp_path, stopped):
    """Also one that waits in a collective for another, and one that is stopped."""
    process = started(ORPHANS, tmp_path)
    wait_for(tmp_path / "0.pid", process)
    wait_for(tmp_path / "1.pid", process)
    ranks = [int((tmp_path / f"{rank}.pid").read_text()) for rank in (0, 1)]
    if stopped is not None:
        os.kill(ranks[stopped], signal.SIGSTOP)
    process.kill()
    process.wait()
    end = time.monotonic() + 60
    while left := [each for each in ranks if alive(each)]:
        assert time.monotonic() < end, f"{left} outlived their parent"
        time.sleep(0.05)


def alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_a_task_whose_process_dies_runs_again(tmp_path):
    items = [(tmp_path, number) for number in range(8)]
    assert list(tasks.run(worker_group_jobs.die_once, items, 2)) == [
        number * number for number in range(8)
    ]
    assert (tmp_path / "died").exists()


def test_a_task_that_always_dies_is_an_error_that_says_so():
    found = tasks.run(worker_group_jobs.die_always, range(5), 2)
    with pytest.raises(
        DistcoreError, match="The processes of a task died 4 times before it was done"
    ):
        list(found)


def test_pools_that_break_while_lost_tasks_are_given_to_them_are_an_error_that_says_so(
    monkeypatch,
):
    """It was Python's BrokenProcessPool."""

    def pool(*_):
        return SimpleNamespace(submit=broken, shutdown=lambda **_: None)

    def broken(*_):
        submitted.append(1)
        if len(submitted) > 2:
            raise BrokenProcessPool
        found = Future()
        found.set_exception(BrokenProcessPool())
        return found

    submitted = []
    monkeypatch.setattr(tasks, "_pool", pool)
    with pytest.raises(DistcoreError, match="The processes of a task died 4 times"):
        list(tasks.run(abs, range(5), 1))


def test_an_error_of_a_plugin_that_no_pickle_takes_comes_with_its_words():
    """It was a TypeError of this process's; of a task, the words that memory ran out."""
    with pytest.raises(DataError, match=r"^age is odd in row 3\."):
        run(worker_group_jobs.raise_odd, ranks=1)
    with pytest.raises(DataError, match=r"^age is odd in row 3\."):
        list(tasks.run(worker_group_jobs.raise_odd, range(2), 2))


@pytest.mark.parametrize(("loading", "computing"), [(0.2, 0.0), (0.0, 0.2), (0.1, 0.1)])
def test_a_slow_rank_is_not_taken_for_one_that_hangs(loading, computing):
    """Three times slower than the other, and each of its steps lasts half of `hang_seconds`."""
    plan = TinyRun(
        {"train_steps": 6, "effective_batch_size": 32, "batch_size": "auto"}, validation_rows=0
    )
    assert run(worker_group_jobs.train_slowly, plan, loading, computing, hang_seconds=1.2) == [6, 6]


def test_a_rank_that_hangs_is_ended_also_where_another_one_is_done():
    """Rank 0 writes the model when the others are done: what it hung in was waited for for ever."""
    with pytest.raises(TrainingError, match=r"rank 0 \(process .* no progress .* it is saving"):
        run(worker_group_jobs.hang_after_the_others, hang_seconds=1.0)
