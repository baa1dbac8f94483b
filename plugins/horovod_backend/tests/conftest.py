"""Runs distcore, or a script, under a launcher, with a deadline after which nothing is left
running."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from distcore_testing import data

BIN = Path(sys.executable).parent
SECONDS = 600


class Ran:
    """code: exit code. text: what was printed, by all: first to stdout, then to stderr."""

    def __init__(self, code, text):
        self.code, self.text = code, text


def start(words, folder, **environment):
    """A process group of its own, so that no rank outlives a test."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HOROVOD_", "OMPI_", "PMI"))
    }
    kept |= {
        "OMP_NUM_THREADS": "1",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        **environment,
    }
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=kept,
        stdout=subprocess.PIPE,
        # A pipe of its own: mpirun forwards the two without regard to what was written first, so
        # that a line of one may end up within a line of the other.
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _started.append(process.pid)
    return process


_started: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_is_left():
    """A test that fails leaves no run behind: launchers give each rank a group of its own."""
    yield
    for group in _started:
        for child in [*below(group), group]:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue
    _started.clear()


def below(process):
    """Everything below the process."""
    try:
        return [each.pid for each in psutil.Process(process).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def finish(process, seconds=SECONDS):
    """Wait for the end; everything in its group is gone afterwards."""
    try:
        text = "".join(process.communicate(timeout=seconds))
        return Ran(process.returncode, text)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text = "".join(process.communicate())
        raise AssertionError(f"still running after {seconds} s:\n{text}") from None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


LAUNCHER = [sys.executable, "-m", "horovod.runner.launch"]
"""horovodrun, of this Python."""


def horovodrun(ranks):
    """The words before a command: the launcher without MPI."""
    return [*LAUNCHER, "--gloo", "-np", str(ranks)]


def mpirun(ranks):
    """The words before a command. If there is no MPI: a skip, or, if the CI says that there must
    be one, a failure."""
    if shutil.which("mpirun") is None:
        if os.environ.get("DISTCORE_REQUIRE_MPI") == "1":
            pytest.fail("mpirun is not installed, and DISTCORE_REQUIRE_MPI=1 says that it must be")
        pytest.skip(
            "mpirun is not installed (Debian: openmpi-bin, libopenmpi-dev; then make horovod)"
        )
    # Open MPI waits in a tight loop; on a machine with other work, ranks would take each other's
    # processor.
    gently = ["--mca", "mpi_yield_when_idle", "1"]
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", *gently, "-np", str(ranks)]


def distcore(*words):
    """The command line."""
    return [sys.executable, "-m", "distcore.cli.main", *map(str, words)]


@pytest.fixture(scope="session")
def launch():
    """`start`, `finish`, `horovodrun`, `mpirun` and `distcore`, for tests."""
    return SimpleNamespace(
        start=start,
        finish=finish,
        launcher=LAUNCHER,
        horovodrun=horovodrun,
        mpirun=mpirun,
        distcore=distcore,
    )


@pytest.fixture
def tiny(tmp_path):
    """A folder with data.csv and config.yaml, which names no backend; the cache is beside the
    data."""
    import pyarrow.csv
    import yaml

    pyarrow.csv.write_csv(data.table(600), tmp_path / "data.csv")
    config = data.config("cache")
    config["trainer"] = {"epochs": 2, "batch_size": 32}
    config["backend"] = {"cache_dir": "cache"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    return tmp_path
