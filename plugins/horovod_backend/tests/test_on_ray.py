"""The trainer `horovod` on the ray backend: no MPI, no launcher; the bits of ddp, and a killed
worker is retried."""

import hashlib
import logging
import os
import signal
import threading
import time
import uuid
from pathlib import Path

import pytest

import distcore
from distcore_testing import data
from distcore_testing.brake import Brake

pytestmark = pytest.mark.cluster

TRAINER = {"epochs": 12, "batch_size": 32, "early_stop": -1}


def weights(outcome):
    return [
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(outcome.model.glob("*.safetensors"))
    ]


def kill_after_a_checkpoint(folder, mark, killed, brake):
    """SIGKILL rank 1 of the worker group with this mark, once a checkpoint is there; then all may
    be fast."""
    until = time.monotonic() + 500
    while time.monotonic() < until:
        found = rank_of(mark, 1)
        if found is not None and list(folder.glob("results/*/checkpoints/step-*")):
            os.kill(found, signal.SIGKILL)
            killed.append(found)
            brake.release()
            return
        time.sleep(0.02)


def rank_of(mark, rank, known={}):  # noqa: B006 - pids that were looked at
    """The process of this rank."""
    for path in Path("/proc").glob("[0-9]*"):
        if known.get(path.name) is False:
            continue
        try:
            words = (path / "cmdline").read_bytes()
            environment = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"distcore_ray.rank" in words:
            if {f"RANK={rank}".encode(), f"DISTCORE_TEST_MARK={mark}".encode()} <= set(environment):
                return int(path.name)
        elif words and b"ray" not in words:
            known[path.name] = False
    return None


def test_a_killed_worker_is_retried_and_the_weights_are_those_of_ddp(tmp_path, monkeypatch, caplog):
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    mark, killed, brake = uuid.uuid4().hex, [], Brake(tmp_path / "brake")
    for name, value in brake.environment.items():
        monkeypatch.setenv(name, value)
    brake.apply(after=30)  # and with it a checkpoint
    config = data.config(str(tmp_path / "cache"), trainer=TRAINER)
    config["backend"] |= {
        "type": "ray",
        "address": "local",
        "num_cpus": 2,
        "object_store_memory": 100 << 20,
        "runtime_env": {"env_vars": {"DISTCORE_TEST_MARK": mark}},
        "trainer": {"type": "horovod", "num_workers": 2, "use_gpu": False, "max_retries": 2},
    }
    killer = threading.Thread(
        target=kill_after_a_checkpoint, args=(tmp_path, mark, killed, brake), daemon=True
    )
    killer.start()
    with caplog.at_level(logging.WARNING, "distcore"):
        outcome = distcore.train(
            config, dataset=data.table(), output_directory=tmp_path / "results"
        )
    assert killed
    assert "started again (1 of at most 2 times" in caplog.text, caplog.text
    config["backend"] = {"type": "local", "cache_dir": str(tmp_path / "cache")}
    config["backend"]["trainer"] = {"type": "data_parallel", "num_workers": 2, "use_gpu": False}
    expected = distcore.train(config, dataset=data.table(), output_directory=tmp_path / "expected")
    assert weights(outcome) == weights(expected)
