"""Real Ray clusters on this machine: several nodes, each with a manager of its own, and nothing
outside their folder."""

import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ray_runs

from distcore_ray.session import child_processes
from distcore_testing.brake import Brake

STARTS = 4
"""Ray gives the start of a node half a minute."""


class Nodes:
    """A cluster whose nodes come and go. RAY_ADDRESS points at it, and nothing else in the
    test's environment. brake: of all that trains there."""

    def __init__(self, cpus: list[int]) -> None:
        # A short name: the nodes' sockets lie below it, and a socket's path may have 107 letters.
        self.folder = tempfile.mkdtemp(prefix="dr-", dir="/tmp")
        self.before = dict(os.environ)
        for name in [name for name in os.environ if name.startswith("RAY_")]:
            del os.environ[name]
        self.brake = Brake(Path(self.folder, "brake"))
        os.environ |= {
            **self.brake.environment,
            "RAY_TMPDIR": self.folder,
            "RAY_AUTH_MODE": "disabled",
            "DISTCORE_RAY_ALLOW_OPEN_CLUSTER": "1",
            # As if what the tests send were installed on every node.
            "PYTHONPATH": os.pathsep.join(
                [str(Path(__file__).parent), self.brake.environment["PYTHONPATH"]]
            ),
        }
        from ray.cluster_utils import Cluster

        self.cluster = Cluster()
        self.nodes = [self.add(each) for each in cpus]
        os.environ["RAY_ADDRESS"] = self.cluster.address
        self.over = threading.Event()
        self.reaper = threading.Thread(target=self._reap, daemon=True)
        self.reaper.start()

    def add(self, cpus: int):
        """A node; tried again where its parts waited in vain for each other, as they do on a
        busy machine."""
        left = STARTS
        while True:
            before = child_processes()
            try:
                return self.cluster.add_node(
                    num_cpus=cpus, include_dashboard=False, object_store_memory=100 << 20
                )
            except Exception as error:  # Ray raises a bare Exception
                for pid in child_processes() - before:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                left -= 1
                if not left or "timed out during startup" not in str(error):
                    raise

    def fill(self, count: int) -> None:
        """Add nodes of one CPU until so many are alive beside the head; those that died are
        forgotten."""
        for node in [
            each for each in self.cluster.worker_nodes if not each.remaining_processes_alive()
        ]:
            self.cluster.remove_node(node, allow_graceful=False)
        while len(self.cluster.worker_nodes) < count:
            self.add(1)

    def _reap(self) -> None:
        """Workers live until the process of their node's manager is gone, and one that nobody
        has waited for is not."""
        while not self.over.wait(0.1):
            for node in list(self.cluster.worker_nodes):
                list(node.dead_processes())

    def close(self) -> None:
        import ray

        self.over.set()
        self.reaper.join()
        ray.shutdown()
        self.cluster.shutdown()
        os.environ.clear()
        os.environ |= self.before
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Three nodes with two CPUs each."""
    made = Nodes([2, 2, 2])
    yield made
    made.close()


@pytest.fixture(scope="module")
def place(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the dataset of whole runs, while the three nodes are there."""
    folder = tmp_path_factory.mktemp("runs")
    ray_runs.dataset(folder)
    return folder


@pytest.fixture(scope="module")
def own_nodes() -> Iterator[Nodes]:
    """A head without CPUs and three nodes with one each, for tests that take some away."""
    made = Nodes([0, 1, 1, 1])
    yield made
    made.close()


@pytest.fixture(scope="module")
def head() -> Iterator[Nodes]:
    """A head without CPUs, for a test that brings its own nodes."""
    made = Nodes([0])
    yield made
    made.close()
