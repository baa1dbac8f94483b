"""A node that does not see the files is named before any work: a real node, in a mount namespace
that hides a folder."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ray_runs

from distcore_core.errors import UserError
from distcore_ray.backend import RayBackend
from distcore_ray.options import BackendOptions

HIDE = 'mount -t tmpfs none "$0" && exec "$@"'
"""A shell in a mount namespace of its own, whose $0 is the folder to hide."""


def namespace():
    """The command that enters a new mount namespace here; None: this machine does not allow it."""
    for words in (["unshare", "-m"], ["unshare", "-r", "-m"]):
        if shutil.which("unshare") is None:
            return None
        tried = [*words, "sh", "-c", HIDE, "/mnt", "true"]
        if subprocess.run(tried, capture_output=True, check=False).returncode == 0:
            return words
    return None


ENTER = namespace()

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.skipif(ENTER is None, reason="no mount namespace may be made here (unshare -m)"),
]


@pytest.fixture
def place(tmp_path):
    """Folders `data`, `cache` and `results`, the first with a dataset."""
    for name in ("data", "cache", "results"):
        (tmp_path / name).mkdir()
    ray_runs.dataset(tmp_path / "data")
    return tmp_path


@pytest.fixture
def blind(head):
    """blind(folder): adds a node that finds nothing in the folder, until the test ends."""
    started = []

    def alive():
        import ray

        return len([each for each in ray.nodes() if each["Alive"]])

    def add(folder):
        before = alive()
        command = [
            *ENTER,
            "sh",
            "-c",
            HIDE,
            str(folder),
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--block",
        ]
        command += [
            f"--address={head.cluster.address}",
            "--num-cpus=1",
            "--object-store-memory=100000000",
        ]
        command += ["--min-worker-port=0", "--max-worker-port=0"]

        def joined():
            if (
                not started or started[-1].poll() is not None
            ):  # it gives itself half a minute, and may be too slow
                started.append(
                    subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
                )
            return alive() > before

        ray_runs.until(joined)

    yield add
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)  # SIGTERM drains the node for half a minute
            process.wait(60)


@pytest.mark.parametrize(
    ("hidden", "what"),
    [("data", "the dataset"), ("cache", "the cache"), ("results", "the results")],
)
def test_a_node_that_does_not_see_a_folder_is_named_before_any_work(blind, place, hidden, what):
    before = sorted(place.rglob("*"))
    backend = RayBackend(BackendOptions())
    backend.connect()
    try:
        blind(place / hidden)
        config = ray_runs.config_of(place / "cache", "x", {"type": "ray"})
        import distcore

        with pytest.raises(UserError) as caught:
            distcore.train(
                config,
                dataset=place / "data" / "data.csv",
                output_directory=place / "results",
                view="none",
            )
    finally:
        backend.close()
    assert str(caught.value).startswith("The node ")
    assert f"of the Ray cluster does not see {what}" in str(caught.value)
    assert str(place / hidden) in str(caught.value)
    assert sorted(place.rglob("*")) == before
