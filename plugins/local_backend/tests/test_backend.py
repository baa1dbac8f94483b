"""The local backend: worker groups that name who died, threads shared out, ctrl-C that ends all."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import worker_group_jobs

from distcore_core.contracts import WorkerGroup
from distcore_core.errors import TrainingError, UserError
from distcore_data.threads import processors
from distcore_local.backend import LocalBackend
from distcore_local.options import BackendOptions


def backend():
    return LocalBackend(BackendOptions())


def test_an_exit_code_is_told_and_handlers_are_put_back():
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(TrainingError, match=r"rank 1 \(process \d+\) ended with exit code 7"):
        backend().run_group(
            WorkerGroup(function=worker_group_jobs.exit_with, arguments=(7,), ranks=2)
        )
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.system
def test_threads_are_shared_out_or_given():
    shared = max(1, processors() // 2)
    assert (
        backend().run_group(WorkerGroup(function=worker_group_jobs.threads, ranks=2))
        == [(shared, str(shared))] * 2
    )
    assert backend().run_group(
        WorkerGroup(function=worker_group_jobs.threads, ranks=1, threads=3)
    ) == [(3, "3")]


def started(program, *arguments):
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=environment,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path, process, seconds=120):
    until(path.exists, process, path, seconds)


def until(condition, process, what, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end, f"{what} never came"
        time.sleep(0.05)


def ended(group, seconds=120):
    """Whether no process of the group is left, or soon none."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


GANG = """
import sys, worker_group_jobs
from test_backend import *
if __name__ == "__main__":
    backend().run_group(WorkerGroup(function=worker_group_jobs.wait_for_interrupt, arguments=(sys.argv[1],), ranks=2))
"""


@pytest.mark.slow
def test_ctrl_c_ends_all_ranks(tmp_path):
    """As a terminal does it: the signal goes to the whole group of processes."""
    process = started(GANG, tmp_path)
    for rank in (0, 1):
        wait_for(tmp_path / str(rank), process)
    os.killpg(process.pid, signal.SIGINT)
    told = process.communicate(timeout=600)[1]
    assert process.returncode == 1, told  # Python's own, for a script that does not catch it
    assert told.rstrip().endswith("distcore_core.errors.Stopped"), told
    assert told.count("Traceback") == 1, "ranks say nothing of their own"
    assert (tmp_path / "0-interrupted").exists()
    assert (tmp_path / "1-interrupted").exists()
    assert ended(process.pid), "processes were left behind"


@pytest.mark.system
def test_ctrl_c_ends_a_rank_that_waits_for_one_that_is_gone(tmp_path):
    """No collective notices by itself that a rank has ended before it came."""
    process = started(GANG.replace("wait_for_interrupt", "wait_for_one_that_stops"), tmp_path)
    for rank in (0, 1):
        wait_for(tmp_path / str(rank), process)
    os.kill(process.pid, signal.SIGINT)
    told = process.communicate(timeout=600)[1]
    assert told.rstrip().endswith("distcore_core.errors.Stopped"), told
    assert ended(process.pid), "processes were left behind"


TRAINING = """
import sys, logging, worker_group_jobs
from test_backend import *
from distcore_testing.loops import TinyRun
logging.basicConfig()
if __name__ == "__main__":
    run = TinyRun({"train_steps": 10**7, "early_stop": -1, "steps_per_checkpoint": 100}, checkpoints=sys.argv[1])
    backend().run_group(WorkerGroup(function=worker_group_jobs.train_until_interrupted, arguments=(run, sys.argv[2]), ranks=2))
"""


@pytest.mark.system
def test_ctrl_c_while_training_saves_one_checkpoint_of_one_step_for_all(tmp_path):
    from distcore_torch.training import checkpoint

    process = started(TRAINING, tmp_path / "run" / "checkpoints", tmp_path)
    kept = tmp_path / "run" / "checkpoints"
    until(lambda: list(kept.glob("step-*")), process, "a checkpoint")
    os.killpg(process.pid, signal.SIGINT)
    told = process.communicate(timeout=600)[1]
    assert process.returncode == 1, told
    (step,) = map(
        int,
        re.findall(r"Stopped after step (\d+)\. Go on from there with --model_resume_path", told),
    )
    saved = checkpoint.load_newest(kept)
    assert saved.state["train"]["step"] == saved.step == step


def test_more_ranks_than_gpus_are_refused_before_any_is_started(monkeypatch):
    monkeypatch.setattr("distcore_local.backend.gpus", lambda: 1)
    group = WorkerGroup(function=worker_group_jobs.threads, ranks=2, use_gpu=True)
    with pytest.raises(UserError, match=r"2 workers cannot have a GPU each.*use 1 of this machine"):
        backend().run_group(group)


def test_resources_import_no_torch():
    program = (
        "import sys; from distcore_local.backend import LocalBackend; from distcore_local.options "
        "import BackendOptions;LocalBackend(BackendOptions()).resources(); sys.exit('torch' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize(
    ("variable", "launcher"),
    [
        ("HOROVOD_SIZE", "horovodrun"),
        ("OMPI_COMM_WORLD_SIZE", "mpirun"),
        ("PMI_SIZE", "mpirun or srun"),
    ],
)
def test_processes_that_a_launcher_started_are_told_that_each_makes_a_run(
    monkeypatch, caplog, variable, launcher
):
    monkeypatch.setenv(variable, "1")
    backend().follow()
    assert not caplog.records
    monkeypatch.setenv(variable, "3")
    backend().follow()
    assert f"{launcher} started 3 processes" in caplog.text
    for name, value in (
        *(("RANK", "0"), ("WORLD_SIZE", "3")),
        *(("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "1")),
    ):
        monkeypatch.setenv(name, value)
    caplog.clear()
    backend().follow()
    assert not caplog.records
