"""A run on a Ray cluster of its own: signals to the driver, and the cluster's own processes
killed under it."""

import os
import re
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.conftest import some
from tests.hostile.test_startup_signals import until_begun

pytestmark = pytest.mark.cluster

ROWS = 2000
CONFIG = """\
input_features:
  - {name: age, type: number}
  - {name: city, type: category}
output_features:
  - {name: bought, type: binary}
trainer: {epochs: 4000, batch_size: 16, steps_per_checkpoint: 40, early_stop: -1}
backend:
  type: ray
  address: local
  num_cpus: 2
  object_store_memory: 100000000
  trainer: {type: ddp, num_workers: 2, max_retries: 0, use_gpu: false}
"""
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGQUIT: 131}


class Run:
    """A driver on a cluster of its own, whose temporary files lie in a folder of this test's."""

    def __init__(self, place, *more):
        self.place = place
        self.driver = place.start("train", *more, RAY_TMPDIR=str(place.ray), TMPDIR=str(place.ray))

    def processes(self):
        """Everything that the run started: {process: its words}."""
        found = {}
        for each in psutil.process_iter():
            with suppress(psutil.Error):
                if each.pid != self.driver.pid and each.environ().get("RAY_TMPDIR") == str(
                    self.place.ray
                ):
                    found[each] = " ".join(each.cmdline())
        return found

    def named(self, *words):
        """Those whose command line holds one of the words."""
        return [
            each for each, line in self.processes().items() if any(word in line for word in words)
        ]

    def until(self, condition, seconds=300):
        """Wait for it; a driver that ended instead is an error that shows what it said."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert self.driver.poll() is None, self.driver.communicate()
            assert time.monotonic() < deadline, self.processes()
            time.sleep(0.05)
        return found

    def checkpoints(self):
        return {
            each.name for each in self.place.results.glob("checkpoints/step-*") if not each.suffix
        }

    def left(self):
        """What is left among Ray's temporary files: sessions, our own folders."""
        return [
            str(each.relative_to(self.place.ray))
            for each in [*self.place.ray.glob("ray/session_*"), *self.place.ray.glob("distcore-*")]
        ]

    def close(self):
        self.driver.kill()
        self.driver.communicate()
        for each in self.processes():
            with suppress(psutil.Error):
                each.kill()


@pytest.fixture
def raying(place):
    """A place whose runs train on Ray until they are stopped."""
    place.write(place.config, CONFIG)
    # Sockets lie below it, and the path of one may have 107 letters.
    place.ray = Path(tempfile.mkdtemp(prefix="dr-", dir="/tmp"))
    place.runs = []
    yield place
    for each in place.runs:
        each.close()
    shutil.rmtree(place.ray, ignore_errors=True)


def start(place, *more):
    place.runs.append(Run(place, *more))
    return place.runs[-1]


def ended(run, seconds=300):
    out, err = run.driver.communicate(timeout=seconds)
    assert "Traceback" not in out + err, err
    return run.driver.returncode, out + err


@pytest.mark.parametrize(
    "sent",
    some([signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT], [signal.SIGTERM]),
    ids=lambda sent: sent.name,
)
def test_a_signal_while_training_saves_a_checkpoint_and_leaves_nothing(raying, sweep, sent):
    """SIGHUP and SIGQUIT as a terminal sends them: to every process of the group."""
    run = start(raying)
    run.until(run.checkpoints)
    before = run.processes()
    if sent == signal.SIGTERM:
        run.driver.send_signal(sent)
    else:
        os.killpg(run.driver.pid, sent)
    code, said = ended(run)
    assert code == SIGNALS[sent], said
    step = re.search(
        r"Stopped after step (\d+)\. Go on from there with --model_resume_path (\S+)", said
    )
    assert step, said
    assert f"step-{int(step[1]):08d}" in run.checkpoints()
    assert f"distcore: stopped by {sent.name}." in said
    assert before
    assert not run.processes(), run.processes()
    assert not run.left()
    sweep.tried(
        f"{sent.name} to a driver of Ray while it trains",
        1,
        "a checkpoint of the step, nothing left",
    )


@pytest.mark.slow
def test_a_signal_at_any_moment_of_a_run(raying, sweep):
    """From the driver's first line to its last; then the run goes on from what was kept."""
    short = CONFIG.replace("epochs: 4000", "epochs: 12")
    raying.write(raying.config, short)
    since = time.monotonic()
    code, said = ended(start(raying))
    assert code == 0, said
    seconds, weights = time.monotonic() - since, raying.results / "model" / "weights.safetensors"
    whole, came = weights.read_bytes(), []
    for _ in range(sweep.times(2, 12)):
        for each in (raying.results, raying.folder / ".distcore_cache"):
            shutil.rmtree(each)
        run, sent = start(raying), sweep.random.choice([*SIGNALS])
        until_begun(run.driver.pid)
        time.sleep(sweep.random.random() * seconds * 0.95)
        run.driver.send_signal(sent)
        code, said = ended(run)
        assert code in (0, SIGNALS[sent]), said
        assert not run.processes(), run.processes()
        assert not run.left()
        kept = re.search(r"go on from it with --model_resume_path (\S+)", said)
        trained = "The model is trained" in said
        came.append("whole" if not code else "kept" if kept or trained else "early")
        if code and not trained:
            code, said = ended(start(raying, *(["--model_resume_path", kept[1]] if kept else [])))
            assert code == 0, said
        assert weights.read_bytes() == whole
    sweep.tried(
        "a signal at a random moment of a driver of Ray",
        len(came),
        f"{came.count('early')} ended before the first checkpoint, {came.count('kept')} with one, "
        f"each with 128 + the signal; {came.count('whole')} were done before; all then came to the "
        "undisturbed weights; no process and no folder was left",
    )


PARTS = {
    "gcs_server": ("gcs_server",),
    "raylet": ("raylet/raylet",),
    "DashboardAgent": ("dashboard/agent.py", "ray::DashboardAgent"),
}
"""{what of Ray is killed: words of its command line}."""


@pytest.mark.parametrize("part", some(["gcs_server", "raylet", "DashboardAgent"], ["gcs_server"]))
def test_a_killed_part_of_ray_is_named_with_the_last_checkpoint(raying, sweep, part):
    """Ray's native library ends the driver for it, some ten or 60 seconds later, without a word
    of Python's."""
    run = start(raying)
    run.until(lambda: len(run.checkpoints()) > 1)
    (victim, *_) = run.until(lambda: run.named(*PARTS[part]))
    victim.kill()
    code, said = ended(run)
    assert code == 1, said
    lost = part if part in ("gcs_server", "raylet") else "raylet"
    found = re.search(
        rf"distcore: Training stopped: the {lost} of the Ray cluster \S+ is gone .* The last "
        r"checkpoint is (\S+); go on from it with --model_resume_path (\S+)",
        said,
    )
    assert found, said
    assert Path(found[1]).name in run.checkpoints()
    assert Path(found[2]) == raying.results
    assert not (raying.results / "model").exists()
    assert not run.processes(), run.processes()
    assert "Ray's own logs of this cluster are in" in said
    assert not list(raying.ray.glob("distcore-*"))
    sweep.tried(
        f"{part} of Ray killed under a run",
        1,
        "named, with the last checkpoint and how to go on; nothing left",
    )
