"""A real Horovod without MPI under mpirun: refused before any work, where by itself it would train
as many models as there are processes. The wheel is built once (five minutes of a processor) and
then kept; test_parts.py has the rule alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ALONE = """
import horovod
import horovod.torch as hvd

hvd.init()
print("SAID", hvd.size(), horovod.__file__)
"""


@pytest.fixture(scope="module")
def without_mpi(tmp_path_factory):
    """A folder with a Horovod built without MPI, as an environment's PYTHONPATH."""
    folder = tmp_path_factory.mktemp("gloo") / "packages"
    build = [sys.executable, "-m", "distcore_horovod.cli", "build", "--mpi", "no"]
    done = subprocess.run(build, capture_output=True, text=True, check=False, timeout=3000)
    assert done.returncode == 0, done.stderr
    wheel = done.stdout.split()[-1]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-deps",
    ]
    subprocess.run([*pip, "--target", str(folder), wheel], check=True)
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    }


def test_mpirun_is_refused_and_horovodrun_works(launch, tiny, without_mpi):
    folder = without_mpi["PYTHONPATH"].split(os.pathsep)[0]
    mpirun = [*launch.mpirun(2), "-x", "PYTHONPATH"]
    alone = launch.finish(launch.start([*mpirun, sys.executable, "-c", ALONE], tiny, **without_mpi))
    lines = [line.split() for line in alone.text.splitlines() if line.startswith("SAID")]
    assert [size for _, size, _ in lines] == ["1", "1"], alone.text
    assert all(Path(found).is_relative_to(folder) for _, _, found in lines)
    words = launch.distcore("train", "-c", "config.yaml", "--dataset", "data.csv", "-od", "results")
    ran = launch.finish(launch.start([*mpirun, *words], tiny, **without_mpi))
    assert ran.code == 2, ran.text
    assert "the installed Horovod has no MPI and would train 2 separate models" in ran.text, (
        ran.text
    )
    assert not (tiny / "results").exists()
    assert not (tiny / "cache").exists()
    ran = launch.finish(launch.start([*launch.horovodrun(2), *words], tiny, **without_mpi))
    assert ran.code == 0, ran.text
    assert (tiny / "results" / "experiment_run" / "model").is_dir()
