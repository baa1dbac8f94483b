"""Ranks without progress: who is named and who is not, by heartbeats of real processes and a
clock of the test's."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from distcore_torch.training import stalls
from distcore_torch.training.heartbeat import (
    COMPUTING,
    FILE,
    LOADING,
    TELLING,
    WAITING,
    Heartbeat,
    Listener,
    heartbeat,
    open_heartbeat,
)
from distcore_torch.training.rank import _tell_checkpoint, _tell_round

BEATING = """
import sys, threading, time
from distcore_torch.training.heartbeat import COMPUTING, heartbeat
beat = heartbeat()
beat.doing(COMPUTING)
def a_name_to_find():
    print("beating", flush=True)
    sys.stdin.readline()
a_name_to_find()
"""

ON_A_FULL_DISK = """
import sys
from pathlib import Path
from distcore_core.errors import TrainingError
from distcore_torch.training.heartbeat import Listener
folder = Path(sys.argv[1])
(folder / "others").write_bytes(bytes(4096))  # all that the disk takes
try:
    Listener(folder / "rank-0").pulse()
except TrainingError as error:
    print(error)
"""


@pytest.fixture
def clock(monkeypatch):
    """Moves when the test says so."""

    class Clock:
        now = 1000.0

        def pass_(self, seconds, watch):
            """The watcher looks once a second; what it wants to give up."""
            for _ in range(round(seconds)):
                self.now += 1
                if (hung := watch.look()) is not None:
                    return hung
            return None

    made = Clock()
    monkeypatch.setattr(stalls.time, "monotonic", lambda: made.now)
    monkeypatch.setattr(stalls, "ANSWER_SECONDS", 0.0)  # nobody would answer
    return made


class Rank:
    """A heartbeat that the test moves."""

    def __init__(self, path, rank, process=0):
        self.watched = stalls.Watched(rank, process or os.getpid(), Listener(path))
        self.beat = Heartbeat(self.watched.listener._memory)


@pytest.fixture
def ranks(tmp_path, clock):
    return [Rank(tmp_path / str(rank), rank) for rank in range(3)]


def watch_of(ranks, hang_seconds=None):
    told = []
    return stalls.Watch([each.watched for each in ranks], hang_seconds, told.append), told


def test_who_computes_is_named_and_who_waits_for_it_is_not(ranks, clock):
    watch, told = watch_of(ranks, hang_seconds=50)
    for each, what in zip(ranks, (WAITING, COMPUTING, WAITING), strict=True):
        each.beat.doing(what)
    assert clock.pass_(18, watch) is None
    assert told == []
    assert clock.pass_(10, watch) is None
    (line,) = told
    assert line.startswith(f"Rank 1 (process {os.getpid()} on ")
    assert "has made no progress for 2" in line
    assert "it is computing" in line
    hung, text = clock.pass_(60, watch)
    assert hung.rank == 1
    assert text.startswith("rank 1 ")


def test_an_extension_that_takes_its_time_is_no_hang_before_a_minute(ranks, clock):
    watch, told = watch_of(ranks, hang_seconds=10)
    for each, what in zip(ranks, (TELLING, WAITING, WAITING), strict=True):
        each.beat.doing(what)
    assert clock.pass_(55, watch) is None
    assert told == []
    hung, text = clock.pass_(10, watch)
    assert hung.rank == 0
    assert "it is telling extensions" in text


def test_the_time_of_extensions_is_none_of_the_steps():
    seen = []

    class Hook:
        def epoch_finished(self, **told):
            seen.append(heartbeat().pulse.doing)
            return ["why"]

        def checkpoint_saved(self, **told):
            seen.append(heartbeat().pulse.doing)

    plugins = SimpleNamespace(manager=SimpleNamespace(hook=Hook()))
    assert _tell_round(plugins, None, 1, 2, {}) == "why"
    _tell_checkpoint(plugins, 2, None)
    assert seen == [TELLING, TELLING]
    assert heartbeat().pulse.doing != TELLING


def test_progress_ends_it_and_is_told(ranks, clock):
    watch, told = watch_of(ranks, hang_seconds=50)
    for _ in range(4):
        for each in ranks:
            each.beat.doing(LOADING)
        assert clock.pass_(40, watch) is None
    assert sum("makes progress again" in line for line in told) >= 3


def test_slow_steps_are_no_stall(ranks, clock):
    """A straggler whose steps take 30 s, and one of them three times as long: named at most, and
    not ended at 31 s."""
    watch, told = watch_of(ranks, hang_seconds=31)
    for _ in range(3):
        for what in (LOADING, COMPUTING):
            for each in ranks:
                each.beat.doing(what)
            assert clock.pass_(15, watch) is None
        for each in ranks:
            each.beat.stepped()
    for each in ranks:
        each.beat.doing(COMPUTING)
    assert clock.pass_(80, watch) is None
    assert told == []


def test_time_that_the_watcher_has_not_seen_blames_nobody(ranks, clock):
    watch, told = watch_of(ranks, hang_seconds=30)
    for each in ranks:
        each.beat.doing(COMPUTING)
    clock.now += 10_000  # asleep, or stopped with all of them
    assert clock.pass_(10, watch) is None
    assert told == []


def test_all_that_wait_for_one_another_are_told(ranks, clock):
    watch, told = watch_of(ranks)
    for each in ranks:
        each.beat.doing(WAITING)
    assert clock.pass_(30, watch) is None
    assert len(told) == 3
    assert all("waiting for the other ranks" in line for line in told)


def test_one_that_waits_is_not_to_blame_if_others_are_out_of_sight(ranks, clock):
    """As on Ray, if another machine's rank hangs: whoever is beside that one tells."""
    told = []
    watch = stalls.Watch([ranks[0].watched], 10, told.append, world=3)
    ranks[0].beat.doing(WAITING)
    assert clock.pass_(500, watch) is None
    assert told == []
    ranks[0].beat.doing(COMPUTING)
    assert clock.pass_(500, watch)[0].rank == 0


def test_who_is_another_watchers_is_seen_and_not_told(ranks, clock):
    """As under torchrun: the first rank hangs, and watches one that waits for it."""
    ranks[0].watched.ours = False
    watch, told = watch_of(ranks[:2], hang_seconds=10)
    ranks[0].beat.doing(COMPUTING)
    ranks[1].beat.doing(WAITING)
    assert clock.pass_(500, watch) is None
    assert told == []


def test_what_has_no_heartbeat_is_left_alone(ranks, clock):
    watch, told = watch_of(ranks, hang_seconds=10)
    assert clock.pass_(200, watch) is None
    assert told == []


def test_a_real_process_tells_where_it_stands_and_that_it_is_stopped(tmp_path):
    listener = Listener(tmp_path / "rank")
    words = [sys.executable, "-c", BEATING]
    environment = {**os.environ, FILE: str(listener.path)}
    with subprocess.Popen(
        words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "beating\n"
        watched = stalls.Watched(4, process.pid, listener, listener.pulse(), still=33.0)
        said = stalls.standing(watched)
        assert (
            f"rank 4 (process {process.pid} on {os.uname().nodename}) has made no progress for 33 s"
            in said
        )
        assert "in a_name_to_find" in said
        os.kill(process.pid, signal.SIGSTOP)
        end = time.monotonic() + 60
        while not stalls.stopped(process.pid):
            assert time.monotonic() < end
        assert "the process is stopped (by SIGSTOP" in stalls.standing(watched)
        os.kill(process.pid, signal.SIGCONT)
        process.communicate("\n")
    assert process.returncode == 0, "asking for its stack did it no harm"


def test_a_full_disk_is_told_before_the_file_is_mapped(tmp_path):
    """A page of a file with holes that finds no room is a signal (SIGBUS), which ended the command
    without a word."""
    mounted = 'mount -t tmpfs -o size=4k none "$0" && echo mounted && exec "$@" "$0"'
    words = ["sh", "-c", mounted, str(tmp_path), sys.executable, "-c", ON_A_FULL_DISK]
    for command in (["unshare", "-m"], ["unshare", "-rm"]):
        if not shutil.which("unshare"):
            break
        done = subprocess.run([*command, *words], capture_output=True, text=True)
        if done.stdout.startswith("mounted"):
            assert done.returncode == 0, (done.returncode, done.stderr)
            assert f"no room for the heartbeats of the ranks in {tmp_path} (no" in done.stdout
            assert "point TMPDIR to a larger disk" in done.stdout
            return
    pytest.skip("no mount namespace is allowed here")


def test_the_calls_are_those_of_the_thread_that_opened_the_heartbeat(tmp_path):
    listener = Listener(tmp_path / "rank")
    (begun, begins), (over, ends) = os.pipe(), os.pipe()

    def another_name_to_find():
        open_heartbeat(str(listener.path))
        # One line, in which it stands from then on.
        os.write(begins, b"x"), os.read(over, 1)

    thread = threading.Thread(target=another_name_to_find)
    thread.start()
    try:
        os.read(begun, 1)
        first, second = listener.calls(60), listener.calls(60)
    finally:
        os.write(ends, b"x")
        thread.join()
        open_heartbeat(None)
        for each in (begun, begins, over, ends):
            os.close(each)
    assert any(call.endswith("in another_name_to_find") for call in first)
    assert first == second


def test_who_does_not_answer_is_waited_for_no_longer_than_that(tmp_path):
    assert Listener(tmp_path / "rank").calls(0.3) == []
