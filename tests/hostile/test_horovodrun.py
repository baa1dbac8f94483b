"""Under horovodrun: whoever is killed or asked to end, the last line names the cause, the
checkpoint and how to go on."""

import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from tests.conftest import some
from tests.hostile.test_startup_signals import until_begun

pytestmark = pytest.mark.cluster

LAUNCHER = ("-m", "horovod.runner.launch")
COMMAND = ("-np", "2", sys.executable, "-m", "distcore.cli.main")
KILLED = (
    r"The run stopped: rank {} \(process {} on \S+\) has ended without a word \(killed, or out of "
    r"memory\?\)\."
)


@pytest.fixture
def launched(request, place, monkeypatch):
    """A run under way, which has saved two checkpoints: its launcher. With gloo, unless a test asks
    for MPI."""
    controller = getattr(request, "param", "--gloo")
    if controller == "--mpi":
        if shutil.which("mpirun") is None and os.environ.get("DISTCORE_REQUIRE_MPI") != "1":
            pytest.skip("mpirun is not installed (Debian: openmpi-bin, libopenmpi-dev)")
        monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
        monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        monkeypatch.setenv("OMPI_MCA_mpi_yield_when_idle", "1")
    text = (
        (place.folder / place.config)
        .read_text()
        .replace("epochs: 1", "epochs: 5000, early_stop: -1")
    )
    place.write(place.config, text.replace("backend: local", "backend: horovod"))
    process = horovodrun(place, controller=controller)
    until(process, lambda: len(checkpoints(place)) > 1)
    yield process
    if process.poll() is None:
        process.kill()
        process.communicate()


def horovodrun(place, *more, controller="--gloo"):
    """The launcher with two ranks that train in the place."""
    return place.python(*LAUNCHER, controller, *COMMAND, *place.words("train", *more))


def until(process, condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def checkpoints(place):
    return {str(each) for each in place.results.glob("checkpoints/step-*") if not each.suffix}


def process_of(place, rank):
    """The process of a rank that works in the place."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            mine = f"HOROVOD_RANK={rank}".encode() in (path / "environ").read_bytes().split(b"\0")
            words = (path / "cmdline").read_bytes().split(b"\0")
            here = os.readlink(path / "cwd") == str(place.folder)
        except OSError:
            continue
        if mine and here and words[1:3] == [b"-m", b"distcore.cli.main"]:
            return int(path.name)
    return None


def last_line(done):
    """Of what was said on standard error, after the launcher's own."""
    return [line for line in done.err.splitlines() if line.strip()][-1]


@pytest.mark.parametrize("rank", some([0, 1], [0]))
def test_a_killed_rank_is_named_last(place, launched, sweep, rank):
    victim = process_of(place, rank)
    os.kill(victim, signal.SIGKILL)
    done = place.finish(launched)
    assert done.code == 1, done.err
    said = last_line(done)
    found = re.fullmatch(
        rf"distcore: {KILLED.format(rank, victim)} The last checkpoint is (\S+); "
        r"go on from it with --model_resume_path (\S+)",
        said,
    )
    assert found, done.err
    assert found[1] in checkpoints(place)
    assert Path(found[2]) == place.results
    assert process_of(place, 0) is process_of(place, 1) is None
    sweep.tried(
        f"rank {rank} killed under horovodrun",
        1,
        "the last line names rank, checkpoint and how to go on",
    )


def test_sigterm_to_the_launcher_saves_a_checkpoint_and_says_so_last(place, launched, sweep):
    launched.terminate()
    done = place.finish(launched)
    assert done.code == 1, done.err
    assert "Process 0 exit with status code -15." in done.out  # never 0, which horovodrun may see
    step = re.search(r"Stopped after step (\d+)\.", done.err)
    assert step, done.err
    found = re.fullmatch(
        r"distcore: stopped by SIGTERM\. The last checkpoint is (\S+); go on .*", last_line(done)
    )
    assert found, done.err
    assert found[1] in checkpoints(place)
    assert found[1].endswith(f"step-{int(step[1]):08d}")
    assert process_of(place, 0) is process_of(place, 1) is None
    sweep.tried("SIGTERM to horovodrun", 1, "a checkpoint of the step; the last line names it")


@pytest.mark.parametrize("launched", ["--mpi"], indirect=True)
def test_sigterm_to_horovodrun_with_mpi_saves_a_checkpoint_too(place, launched, sweep):
    launched.terminate()  # ends a shell, of which mpirun hears nothing
    done = place.finish(launched)  # once all have ended: they hold the same pipe
    assert done.code == -signal.SIGTERM, done.err
    step = re.search(r"Stopped after step (\d+)\.", done.err)
    assert step, done.err
    assert any(each.endswith(f"step-{int(step[1]):08d}") for each in checkpoints(place))
    assert process_of(place, 0) is process_of(place, 1) is None
    sweep.tried("SIGTERM to horovodrun with MPI", 1, "a checkpoint of the step, named")


@pytest.mark.slow
def test_a_signal_at_any_moment_of_a_run(place, sweep):
    """From the launcher's first handler on. Before distcore has joined the ranks it cannot make up
    for horovodrun, which may miss how a rank ended, and speaks last."""
    text = (place.folder / place.config).read_text()
    text = text.replace("epochs: 1", "epochs: 12, early_stop: -1")
    place.write(place.config, text.replace("backend: local", "backend: horovod"))
    since = time.monotonic()
    done = place.finish(horovodrun(place))
    assert done.code == 0, done.err
    seconds, weights = time.monotonic() - since, place.results / "model" / "weights.safetensors"
    whole, came = weights.read_bytes(), []
    for _ in range(sweep.times(2, 10)):
        for each in (place.results, place.folder / ".distcore_cache"):
            shutil.rmtree(each, ignore_errors=True)
        sent = sweep.random.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
        launcher = horovodrun(place)
        until_begun(launcher.pid)
        time.sleep(sweep.random.random() * seconds * 0.95)
        launcher.send_signal(sent)
        done = place.finish(launcher)  # once all have ended: they hold the same pipe
        joined, trained = "digest" in done.err, weights.exists()
        assert not joined or trained or done.code, done
        assert not (joined and done.code) or last_line(done).startswith("distcore: "), done.err
        assert process_of(place, 0) is process_of(place, 1) is None
        kept = re.search(r"go on from it with --model_resume_path (\S+)", done.err)
        came.append(
            "whole" if trained else "kept" if kept else "joined" if joined else "before that"
        )
        if not trained:
            more = ["--model_resume_path", kept[1]] if kept else []
            done = place.finish(horovodrun(place, *more))
            assert done.code == 0, done.err
        assert weights.read_bytes() == whole
    sweep.tried(
        "a signal at a random moment of horovodrun with two ranks",
        len(came),
        f"{came.count('before that')} ended before distcore had joined the ranks, "
        f"{came.count('joined')} before the first checkpoint, {came.count('kept')} with one, "
        f"{came.count('whole')} with the model; since the joining the last line told it and the "
        "exit code was 0 only beside a model; all then came to the undisturbed weights; no rank was "
        "left",
    )
