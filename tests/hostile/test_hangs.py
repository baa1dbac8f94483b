"""Ranks that are stopped or slow: named, ended if the config says so, waited for otherwise; the bits stay the same."""

import os
import re
import signal
import threading
import time

import pytest
from tests.hostile.eavesdropper import config, end

from distcore.workflow import ports

DDP = "{type: local, trainer: {type: ddp, num_workers: 2, use_gpu: false}}"
SECONDS = 400


class Run:
    """A run in a process of its own. said: its lines on stderr so far."""

    def __init__(self, process):
        self.process, self.said = process, []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        self.said += iter(self.process.stderr.readline, "")

    def until(self, ready, what):
        """Wait until ready() gives something; give that."""
        limit = time.monotonic() + SECONDS
        while not (found := ready()):
            assert self.process.poll() is None, f"it ended before {what}: {''.join(self.said)}"
            assert time.monotonic() < limit, f"{what} never came: {''.join(self.said)}"
            time.sleep(0.05)
        return found

    def line(self, pattern):
        return self.until(lambda: re.search(pattern, "".join(self.said)), pattern)

    def ranks(self):
        """Process ids of ranks in the order of ranks: they listen."""
        found = ports.listening(ports.below(self.process.pid))
        return sorted({each.process for each in found})

    def finish(self):
        """The exit code."""
        self.process.wait(timeout=SECONDS)
        self._thread.join()
        return self.process.returncode


@pytest.fixture
def begin(place):
    """Starts `train` with these options of trainer, and ends whatever is left of it."""
    started = []

    def begun(options="", backend=DDP):
        text = config(backend)
        place.write(place.config, text.replace("trainer: {train_steps", f"trainer: {{{options}train_steps", 1))
        started.append(place.start("train"))
        return Run(started[-1])

    yield begun
    for process in started:
        end(process)


def training(run, place):
    """Both ranks, once they train: the gradients' memory is mapped."""

    def mapped():
        found = [each for each in run.ranks() if "distcore-gradients" in maps(each)]
        return found if len(found) == 2 else None

    return run.until(mapped, "training")


def maps(process):
    try:
        with open(f"/proc/{process}/maps") as file:
            return file.read()
    except OSError:
        return ""


def test_a_stopped_rank_is_named_and_goes_on(place, sweep, begin):
    run = begin()
    stopped = sweep.random.choice(training(run, place))
    os.kill(stopped, signal.SIGSTOP)
    named = run.line(r"Rank (\d) \(process (\d+) on \S+\) has made no progress for (\d+) s: (.*)\n")
    assert int(named[2]) == stopped
    assert int(named[3]) >= 20
    assert "the process is stopped (by SIGSTOP" in named[4]
    os.kill(stopped, signal.SIGCONT)
    run.line(rf"Rank {named[1]} \(process {stopped} on \S+\) makes progress again")
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    assert "Go on from there with --model_resume_path" in "".join(run.said)
    sweep.tried("SIGSTOP to one rank of ddp", 1, "named after 20 s with rank, process and host; went on after SIGCONT")


def test_a_stopped_rank_is_ended_after_hang_seconds_and_the_run_goes_on(place, sweep, begin):
    run = begin("hang_seconds: 3, ")
    stopped = sweep.random.choice(training(run, place))
    os.kill(stopped, signal.SIGSTOP)
    run.line(rf"Rank \d \(process {stopped} on \S+\) has made no progress for \d+ s: .* All ranks were started again")
    assert stopped not in training(run, place)
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    sweep.tried("SIGSTOP to one rank of ddp with trainer.hang_seconds", 1, "ended, named, and all started again")


def test_the_last_hang_is_an_error_that_names_the_rank(place, sweep, begin):
    run = begin("hang_seconds: 3, ", DDP.replace("use_gpu", "max_retries: 0, use_gpu"))
    stopped = sweep.random.choice(training(run, place))
    os.kill(stopped, signal.SIGSTOP)
    assert run.finish() == 1
    said = "".join(run.said)
    assert re.search(
        rf"distcore: Training stopped: rank \d \(process {stopped} on \S+\) has made no progress for", said
    )
    assert "Traceback" not in said
    sweep.tried("SIGSTOP to one rank of ddp without retries", 1, "exit code 1, the rank named last")
