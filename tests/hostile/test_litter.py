"""Commands that are killed at any moment: what they were making is gone after the next one in that place."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.hostile.conftest import Sweep

TEMPORARY = re.compile(r"\.(building|removing)-|\.tmp$|(^|/)\.?lock$|\.lock$|^tmp/|\.parts(/|$)")
KILLER = """
import os, random, signal, sys
from distcore.cli import main as cli

seed, name = int(sys.argv[1]), sys.argv[2]
functions = ("open", "replace", "rename", "fsync", "mkdir", "unlink", "link")
left = random.Random(seed).randrange(1, int(sys.argv[3]))

def counted(function):
    def call(*given, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given, **named)
    return call

for each in functions:
    setattr(os, each, counted(getattr(os, each)))
sys.exit(cli.main(sys.argv[4:]))
"""
"""The command line, killed at a chosen call of what makes, renames and forces files."""

CALLS = {"experiment": 110, "predict": 30, "evaluate": 35, "report": 8}
"""About how many such calls a command makes."""


def litter(place) -> list[str]:
    """What was being made when a process died, as it lies there now."""
    return [name for name in place.listing() if TEMPORARY.search(name)]


def killed(place, seed: int, command: str, *more: object) -> bool:
    """Run a command that is killed at a moment that the seed chooses; False: it had ended before."""
    words = [str(seed), command, str(CALLS[command]), *place.words(command, *more)]
    if command == "report":
        words = [*words[:3], command, *(str(each) for each in more)]
    process = subprocess.run(
        [sys.executable, "-c", KILLER, *words],
        cwd=place.folder,
        env={**os.environ, "TMPDIR": str(place.folder / "tmp"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode in (0, -signal.SIGKILL), process.stderr
    return process.returncode != 0


def swept(place, sweep, times: int, command: str, *more: object) -> None:
    """Kill the command at many moments, then let it run to its end, and look at what lies there."""
    deaths = left = 0
    for _ in range(times):
        deaths += killed(place, sweep.random.randrange(1 << 30), command, *more)
        left += len(litter(place))
        last = place.good(command, *more)
        assert not litter(place), last.err
    sweep.tried(
        f"SIGKILL within `{command}`, then the same command again",
        times,
        f"{deaths} died of it and left {left} temporaries; none was there after the next run",
    )


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_killed_prediction(place, trained, sweep, command):
    swept(place, sweep, sweep.times(1, 5), command, "--model_path", trained)


@pytest.fixture
def seeded(request) -> Sweep:
    """Random numbers that can be repeated, for tests that make no row of docs/reliability.md."""
    return Sweep(request.node.nodeid)


def test_a_killed_experiment(place, seeded):
    swept(place, seeded, 1, "experiment")


def test_a_killed_report(place, trained, seeded):
    run = shutil.copytree(trained, place.folder / "run")
    for _ in range(2):
        killed(place, seeded.random.randrange(1 << 30), "report", str(run))
        report_again(run)
        assert not litter(place)


def report_again(run: Path) -> None:
    from distcore.cli.main import main

    assert main(["report", str(run)]) == 0
