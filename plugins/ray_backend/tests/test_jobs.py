"""`ray job submit -- distcore train …` on a head with a dashboard, on the loopback interface and
with a token."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
import ray_runs

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def ray_command(*words):
    return [sys.executable, "-m", "ray.scripts.scripts", *words]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture(scope="module")
def head():
    """The environment in which `ray job submit` reaches a head that was started for this module."""
    folder = tempfile.mkdtemp(prefix="dr-", dir="/tmp")
    port, dashboard, agent = free_port(), free_port(), free_port()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("RAY_")
    } | {
        "RAY_TMPDIR": folder,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": uuid.uuid4().hex,
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "OMP_NUM_THREADS": "1",
    }
    words = [
        "start",
        "--head",
        "--block",
        "--num-cpus=2",
        f"--port={port}",
        "--node-ip-address=127.0.0.1",
    ]
    words += [
        "--include-dashboard=true",
        "--dashboard-host=127.0.0.1",
        f"--dashboard-port={dashboard}",
    ]
    words += [f"--dashboard-agent-listen-port={agent}", "--object-store-memory=100000000"]
    with open(Path(folder, "head.log"), "w") as log:
        process = subprocess.Popen(
            ray_command(*words),
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    environment["RAY_API_SERVER_ADDRESS"] = f"http://127.0.0.1:{dashboard}"

    def answers():
        assert process.poll() is None, Path(folder, "head.log").read_text()
        return called(environment, "job", "list").returncode == 0

    try:
        ray_runs.until(answers, 180)
        yield environment
    finally:
        os.killpg(process.pid, signal.SIGINT)  # SIGTERM drains the node for half a minute
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def called(environment, *words):
    return subprocess.run(
        ray_command(*words),
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def submitted(environment, folder, *words):
    """What a job said, and whether it succeeded. folder: its working directory, sent along."""
    done = called(
        environment, "job", "submit", "--working-dir", str(folder), "--", "distcore", *words
    )
    return done.stdout + done.stderr, done.returncode == 0


@pytest.fixture
def work(tmp_path):
    """A folder with config.yaml alone, and beside it `shared` with the dataset; the config names
    no backend."""
    (tmp_path / "work").mkdir()
    (tmp_path / "shared").mkdir()
    config = ray_runs.config_of(tmp_path / "shared", "job", {"trainer": {"num_workers": 2}})
    (tmp_path / "work" / "config.yaml").write_text(yaml.safe_dump(config))
    ray_runs.dataset(tmp_path / "shared")
    return tmp_path


def test_a_config_that_names_no_ray_trains_on_the_cluster_of_its_job(head, work):
    shared = work / "shared"
    given = [
        "--config",
        "config.yaml",
        "--dataset",
        str(shared / "data.csv"),
        "--output_directory",
        str(shared),
    ]
    said, well = submitted(head, work / "work", "train", *given)
    assert well, said
    assert re.search(r"Using the Ray cluster (127\.0\.0\.1:\d+) \(RAY_ADDRESS is \1\)", said), said
    folder = shared / "experiment_run"
    assert json.loads((folder / "description.json").read_text())["backend"]["name"] == "ray"
    here = ray_runs.train(
        shared, "here", {"type": "local", "trainer": {"type": "data_parallel", "num_workers": 2}}
    )
    assert ray_runs.weights(folder) == ray_runs.weights(here.directory)


def test_a_job_that_is_refused_says_why_and_fails(head, work):
    said, well = submitted(
        head, work / "work", "train", "--config", "config.yaml", "--dataset", "/nowhere.csv"
    )
    assert not well
    assert "distcore: /nowhere.csv: no such file. Correct the dataset's path." in said
    assert "Job entrypoint command failed with exit code 2" in said


def test_who_has_no_token_cannot_submit(head, work):
    """The job server runs what it is sent."""
    bare = {**head, "RAY_AUTH_MODE": "disabled", "HOME": str(work)}
    del bare["RAY_AUTH_TOKEN"]
    said, well = submitted(bare, work / "work", "doctor")
    assert not well
    assert "Unauthorized: Missing authentication token" in said, said
