"""Commands that are killed at any moment: what they were making is gone after the next one in
that place."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.conftest import CONFIG, some, wait_for_the_end_of
from tests.hostile.eavesdropper import end
from tests.hostile.test_network import SEARCH

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

OUTCOME = "{} died of it and left {} temporaries; none was there after the next run"

CALLS = {"experiment": 110, "predict": 30, "evaluate": 35, "report": 8}
"""About how many such calls a command makes."""


def litter(place) -> list[str]:
    """What was being made when a process died, as it lies there now."""
    return [name for name in place.listing() if TEMPORARY.search(name)]


def killed(place, seed: int, command: str, *more: object) -> bool:
    """Run a command that is killed at a moment that the seed chooses; False: it had ended
    before."""
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
        OUTCOME.format(deaths, left),
    )


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_killed_prediction(place, trained, sweep, command):
    swept(place, sweep, sweep.times(1, 5), command, "--model_path", trained, "--overwrite")


def test_a_killed_experiment(place, sweep):
    swept(place, sweep, sweep.times(1, 20), "experiment")


def test_a_killed_report(place, trained, sweep):
    run = shutil.copytree(trained, place.folder / "run")
    times, deaths, left = sweep.times(2, 20), 0, 0
    for _ in range(times):
        deaths += killed(place, sweep.random.randrange(1 << 30), "report", str(run))
        left += len(litter(place))
        report_again(run)
        assert not litter(place)
    sweep.tried(
        "SIGKILL within `report`, then the same command again", times, OUTCOME.format(deaths, left)
    )


# ------------------------------------------------------------------ commands of several processes

GROUPS = {
    "a `train` of two ranks of ddp": (
        "train",
        "local, trainer: {type: data_parallel, num_workers: 2, use_gpu: false}",
        "",
    ),
    "a search of two trials at once": (
        "hyperopt",
        "local",
        SEARCH.replace("trials: 1", "trials: 2"),
    ),
}
"""{what is killed: (command, backend, what else the config says)}."""


@pytest.mark.parametrize("what", some(GROUPS, ["a `train` of two ranks of ddp"]))
def test_a_killed_group(place, sweep, what):
    """The process that was started, alone or with all that it has started, at a random moment."""
    command, backend, more = GROUPS[what]
    place.write(
        place.config, CONFIG.replace("backend: local", f"backend: {{type: {backend}}}") + more
    )
    words = ["--config", place.folder / place.config]
    since = time.monotonic()
    whole = place.process(command, *words)
    seconds = time.monotonic() - since
    assert whole.code == 0, whole.err
    assert not litter(place)
    times, deaths, left = sweep.times(1, 30), 0, 0
    for _ in range(times):
        shutil.rmtree(place.folder / "results")
        process = place.start(command, *words)
        time.sleep(sweep.random.uniform(0.2, 0.95) * seconds)
        if sweep.random.random() < 0.5:
            process.kill()
        else:
            end(process)
        deaths += process.wait() != 0
        process.communicate()
        wait_for_the_end_of("session", process.pid)
        left += len(litter(place))
        begun = next(
            (place.folder / "results").glob("*/search.json"), None
        )  # else nobody could go on with it
        again = place.process(
            command, *words, *(["--model_resume_path", begun.parent] if begun else [])
        )
        assert again.code == 0, again.err
        assert not litter(place), again.err
    sweep.tried(
        f"SIGKILL within {what}, then the same command again", times, OUTCOME.format(deaths, left)
    )


def report_again(run: Path) -> None:
    from distcore.cli.main import main

    assert main(["report", str(run)]) == 0
