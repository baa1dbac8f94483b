"""The brake: a training waits for the test, in a process of its own, and its weights are those of
one that never did."""

import json
import os
import subprocess
import sys
import time

import pytest

from distcore_core.contracts import Rank
from distcore_testing.brake import Brake
from distcore_testing.loops import TinyRun, train_tiny
from distcore_testing.rank_jobs import until

OPTIONS = {"train_steps": 400, "early_stop": -1, "steps_per_checkpoint": 20}
PROGRAM = """
import json, sys
from distcore_core.contracts import Rank
from distcore_testing.loops import TinyRun, train_tiny
print(train_tiny(Rank(), TinyRun(json.loads(sys.argv[1]), checkpoints=sys.argv[2]))["digest"])
"""


def begun(brake, folder):
    """A training in a process of its own."""
    words = [sys.executable, "-c", PROGRAM, json.dumps(OPTIONS), str(folder)]
    environment = {**os.environ, **brake.environment}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def brake(tmp_path):
    return Brake(tmp_path / "brake")


def test_a_training_is_slow_until_it_is_released_and_ends_with_its_weights(brake, tmp_path):
    brake.apply(after=30)
    with begun(brake, tmp_path / "run") as process:
        assert until(lambda: list((tmp_path / "run").glob("step-*")))
        time.sleep(1)  # 400 steps take far less
        assert process.poll() is None
        assert [each.name for each in (tmp_path / "run").glob("step-*")] == ["step-00000020"]
        brake.release()
        digest = process.stdout.read().strip()
    assert process.returncode == 0
    assert digest == train_tiny(Rank(), TinyRun(OPTIONS))["digest"]


def test_as_many_as_are_spared_come_to_their_end(brake, tmp_path):
    brake.apply(after=30, spared=1)
    runs = [begun(brake, tmp_path / name) for name in ("first", "second")]
    assert until(lambda: any(each.poll() == 0 for each in runs))
    time.sleep(1)
    assert sum(each.poll() is None for each in runs) == 1
    brake.release()
    assert all(each.communicate()[0] for each in runs)
    assert not list(brake.folder.glob("spared-*"))
