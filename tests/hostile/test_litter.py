"""Commands that are killed at any moment: what they were making is gone after the next one in that place."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TEMPORARY = re.compile(r"\.(building|removing)-|\.tmp$|(^|/)\.?lock$|\.lock$|^tmp/|\.parts(/|$)")
SEARCH = """\
hyperopt:
  output_feature: bought
  metric: roc_auc
  goal: maximize
  parameters: {trainer.learning_rate: {space: loguniform, lower: 0.0001, upper: 0.1}}
  executor: {type: local, num_samples: 3, max_concurrent_trials: 2}
"""
DDP = "{type: local, trainer: {type: ddp, num_workers: 2}}"
KILLER = """
import os, random, signal, sys
from distcore import cli

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

CALLS = {"experiment": 110, "predict": 30, "evaluate": 35, "report": 8, "hyperopt": 150}
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


def test_a_killed_experiment(place, sweep):
    swept(place, sweep, sweep.times(1, 5), "experiment")


def test_a_killed_report(place, trained, sweep):
    run = shutil.copytree(trained, place.folder / "run")
    deaths = 0
    for _ in range(sweep.times(1, 5)):
        deaths += killed(place, sweep.random.randrange(1 << 30), "report", str(run))
        report_again(run)
        assert not litter(place)
    sweep.tried("SIGKILL within `report`, then the same command again", sweep.times(1, 5), f"{deaths} died; none left")


def report_again(run: Path) -> None:
    from distcore.cli import main

    assert main(["report", str(run)]) == 0


@pytest.mark.slow
def test_a_killed_search(place, sweep):
    place.write(place.config, (place.folder / place.config).read_text() + SEARCH)
    words = ("--config", str(place.folder / place.config))
    results = place.folder / "results" / "hyperopt_run"
    deaths = tries = 0
    for _ in range(sweep.times(1, 2)):
        shutil.rmtree(place.folder / "results", ignore_errors=True)
        tries += 1
        deaths += killed(place, sweep.random.randrange(1 << 30), "hyperopt", *words)
        go_on = ("--model_resume_path", str(results)) if (results / "search.json").exists() else ()
        done = place.good("hyperopt", *words, *go_on)
        assert not litter(place), done.err
    sweep.tried("SIGKILL within `hyperopt`, then --model_resume_path", tries, f"{deaths} died of it; none left")


def test_a_killed_gang(place, sweep):
    """Both ranks and their driver at once, as when a machine runs out of memory."""
    place.write(place.config, (place.folder / place.config).read_text().replace("backend: local", f"backend: {DDP}"))
    times = sweep.times(1, 2)
    for _ in range(times):
        process = place.start("train")
        wait_for_any(place.folder / "tmp", sweep.random.random() * 6)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        done = place.finish(place.start("train"))
        assert done.code == 0, done.err
        assert not litter(place), done.err
    sweep.tried("SIGKILL of a driver and two ranks of ddp, then the same command again", times, "none left")


def wait_for_any(folder: Path, more: float) -> None:
    """Until something lies in the folder, or the command has had a minute; and then some seconds that the seed chose."""
    end = time.monotonic() + 60
    while not list(folder.iterdir()) and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(more)
