"""SIGINT, SIGTERM, SIGHUP and SIGQUIT at random moments of every command: the exit code tells
which, nobody is left, nothing half-written stays, and a run that goes on ends with the weights
of an undisturbed one."""

import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from tests.conftest import some
from tests.hostile.test_startup_signals import begin

from distcore_torch.signals import ENDING, named

CONFIG = """
input_features:
  - {name: age, type: number}
  - {name: city, type: category}
output_features:
  - {name: bought, type: binary}
trainer: {epochs: 12, effective_batch_size: 64, early_stop: -1, learning_rate_scaling: constant}
"""
LOCAL = CONFIG + "backend: local\n"
DDP = CONFIG + "backend: {type: local, trainer: {type: ddp, num_workers: 2}}\n"
SEARCH = (
    LOCAL.replace("epochs: 12", "epochs: 2")
    + """
hyperopt:
  parameters: {trainer.learning_rate: {space: choice, categories: [0.001, 0.01]}}
  executor: {type: local, num_samples: 2, max_concurrent_trials: 1}
"""
)
LEFT = r"\.(building|removing)-|\.tmp$|^tmp/(distcore|pytorch|tmp)|(^|/)rows-"


def undisturbed(place, words):
    """Run the command; how many seconds it took."""
    since = time.monotonic()
    done = place.finish(begin(place, words))
    assert done.code == 0, done.err
    return time.monotonic() - since


def disturbed(sweep, place, words, seconds):
    """The command with a random signal at a random moment, as it ended: by the signal, or because
    it was done before.

    Nobody of its processes is left, and nothing half-written."""
    number = sweep.random.choice(ENDING)
    process = begin(place, words)
    time.sleep(sweep.random.random() * seconds * 0.95)
    if sweep.random.random() < 0.5:
        process.send_signal(number)
    else:
        os.killpg(process.pid, number)
    done = place.finish(process)
    assert done.code in (0, 128 + number), done
    assert "Traceback" not in done.err, done.err
    assert not living(process.pid), done.err
    assert not [each for each in place.listing() if re.search(LEFT, each)], done.err
    if done.code:
        said = [each for each in done.err.splitlines() if each.startswith("distcore: ")]
        assert len(said) == 1, done.err
        assert said[0].startswith(f"distcore: stopped by {named(number)}."), done.err
    return done


def living(group, seconds=120):
    """Whether some process of the group is there, even after a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True


def weights(folder):
    """The bytes that training ends with."""
    return (folder / "model" / "weights.safetensors").read_bytes()


@pytest.mark.parametrize(("trainer", "times"), [("local", 20), ("ddp", 4)], ids=["local", "ddp"])
def test_training(sweep, place, trainer, times):
    """From the first line of the program to the last, the cache not yet built; then it goes on
    from what was kept."""
    place.write("config.yaml", LOCAL if trainer == "local" else DDP)
    words = place.words("train")
    seconds, whole = undisturbed(place, words), weights(place.results)
    ended = []
    for _ in range(sweep.times(2, times)):
        for each in (place.results, place.folder / ".distcore_cache"):
            shutil.rmtree(each, ignore_errors=True)
        done = disturbed(sweep, place, words, seconds)
        kept = re.search(
            r"The last checkpoint is (\S+); go on from it with --model_resume_path (\S+)", done.err
        )
        trained = "The model is trained" in done.err
        if done.code and place.results.exists():
            assert trained or (kept and Path(kept[1]).is_dir()), done.err
        if done.code and not trained:
            place.good("train", *(["--model_resume_path", kept[2]] if kept else []))
        assert weights(place.results) == whole
        ended.append("whole" if not done.code else "kept" if kept or trained else "early")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    sweep.tried(
        f"a signal at a random moment of `distcore train` ({trainer})",
        len(ended),
        f"{ended.count('early')} ended before the first checkpoint, {ended.count('kept')} with "
        f"one, each with 128 + the signal; {ended.count('whole')} were done before; all then came "
        "to the undisturbed weights; nothing was left",
    )


def files(place, pattern):
    """{name: digest} of the files that a command makes."""
    return {
        name: each
        for name, each in place.listing().items()
        if re.search(pattern, name) and each != "folder"
    }


COMMANDS = {
    "preprocess": (r"^\.distcore_cache/.*(parquet|json)$", 15),
    "experiment": (r"predictions.parquet|test_statistics|weights", 3),
    "predict": (r"predictions.parquet", 8),
    "evaluate": (r"predictions.parquet|test_statistics", 8),
    "report": (r"report.html", 8),
    "hyperopt": (r"NOTHING", 3),
}
"""{name: (the files that it makes, how often under `make hostile`)}."""


@pytest.mark.parametrize("command", some(COMMANDS, ["preprocess", "experiment", "hyperopt"]))
def test_other_commands(sweep, place, trained, command):
    """What it makes is whole, or not there; run again, it makes the same bytes."""
    place.write("config.yaml", SEARCH if command == "hyperopt" else LOCAL)
    words = place.words(
        command, *(["--model_path", trained] if command in ("predict", "evaluate") else [])
    )
    words += ["--overwrite"] if command in ("predict", "evaluate") else []
    if command == "report":
        shutil.copytree(trained, place.results)
        words = ["report", str(place.results)]
    if command == "hyperopt":
        words += ["--config", str(place.folder / "config.yaml")]
    pattern, times = COMMANDS[command]
    seconds, whole = undisturbed(place, words), files(place, pattern)
    ended = []
    for _ in range(sweep.times(1, times)):
        for name in whole:
            (place.folder / name).unlink()
        if command != "report":
            for each in (place.folder / "results", place.folder / ".distcore_cache"):
                shutil.rmtree(each, ignore_errors=True)
        done = disturbed(sweep, place, words, seconds)
        assert files(place, pattern).items() <= whole.items() or command in (
            "preprocess",
            "experiment",
        )
        if done.code:
            if command == "experiment":  # it would take another folder
                shutil.rmtree(place.folder / "results", ignore_errors=True)
            going_on = (
                re.search(r"--model_resume_path (\S+)", done.err) if command == "hyperopt" else None
            )
            again = place.finish(
                place.python("-m", "distcore", *words, *(going_on[0].split() if going_on else []))
            )
            assert again.code == 0, again.err
        assert files(place, pattern) == whole
        ended.append(done.code)
    sweep.tried(
        f"a signal at a random moment of `distcore {command}`",
        len(ended),
        f"{len(ended) - ended.count(0)} ended with 128 + the signal and left nothing half-written, "
        f"{ended.count(0)} were done before; run again, each made the same bytes",
    )
