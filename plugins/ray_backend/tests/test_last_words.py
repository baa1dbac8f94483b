"""What a rank says beside its numbers, and how its end is seen."""

import logging
import os
import signal
import subprocess
import sys
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

from distcore_ray import rank, worker
from distcore_ray.coordinator import Seat
from distcore_torch.training.stalls import Watch

LAST_WORDS = """
import os, signal, sys
from multiprocessing.connection import Connection
child = os.fork()
if not child:
    os.kill(os.getpid(), signal.SIGSTOP)
connection = Connection(int(sys.argv[1]))
connection.send(("log", 30, str(child)))
if sys.argv[2] == "done":
    connection.send(("result", b"done"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_log_line_that_does_not_format_ends_nothing(monkeypatch, capsys):
    """As everywhere else: Python's handlers say so on standard error, and go on."""
    ours, theirs = Pipe()
    log = logging.Logger("distcore.mine")
    log.addHandler(rank._LogToWorker(rank.Line(theirs), "Rank 1: "))
    log.warning("%d rows", "no")
    assert "Logging error" in capsys.readouterr().err
    try:
        raise KeyError("k")
    except KeyError:
        log.exception("%d rows", 3)
    level, text = ours.recv()[1:]
    assert level == logging.ERROR
    assert text.startswith("Rank 1: 3 rows\nTraceback")
    assert text.endswith("KeyError: 'k'")


@pytest.mark.parametrize("last", ["done", "none"])
def test_the_end_of_a_rank_is_seen_although_what_it_forked_holds_its_socket(monkeypatch, last):
    """As a pool of processes does, whose rank is killed for want of memory: nobody heard of it, and
    the others waited for it for ever."""
    told, logs = [], []

    def remote(name):
        def call(*words):
            told.append((name, words))
            logs.extend(words[2] if name == "tell" else [])
            return (False, False)

        return SimpleNamespace(remote=call)

    monkeypatch.setattr(worker.ray, "get", lambda value: value)
    coordinator = SimpleNamespace(**{name: remote(name) for name in ("tell", "done", "fail")})
    ours, theirs = Pipe()
    words = [sys.executable, "-c", LAST_WORDS, str(theirs.fileno()), last]
    process = subprocess.Popen(words, pass_fds=[theirs.fileno()])
    theirs.close()
    seat = Seat("a", 0, 1, "n", "h", process.pid)
    try:
        if last == "done":
            worker._watch(coordinator, seat, process, ours, Watch([]))
            assert told[-1] == ("done", (seat, b"done", False))
        else:
            with pytest.raises(worker.RankFailed, match="rank 0 was killed by SIGKILL"):
                worker._watch(coordinator, seat, process, ours, Watch([]))
            assert (told[-1][0], told[-1][1][0].died) == ("fail", True)
    finally:
        process.kill()
        process.wait()
        for _, child in logs:
            os.kill(int(child), signal.SIGKILL)
