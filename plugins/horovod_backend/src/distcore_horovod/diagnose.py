"""What the installed Horovod can do, for `distcore doctor` and `distcore-horovod check`: asked
in a child process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from distcore_horovod.installed import found, problem
from distcore_torch.training.launched import says_which_rank

SECONDS = 120

ASK = """
import json
import torch
import horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.ones(4), op=hvd.Sum)
print("FOUND" + json.dumps({
    "size": hvd.size(), "sum": total.tolist(),
    "gloo": bool(hvd.gloo_built()), "mpi": bool(hvd.mpi_built()),
    "nccl": bool(hvd.nccl_built()), "cuda": bool(hvd.cuda_built()),
}))
"""


class Unusable(Exception):
    """Horovod cannot be imported or cannot add; the text says why."""


def ask(folder: Path | None = None) -> dict[str, bool]:
    """Import Horovod in a child process, add a tensor over one rank, and say what it was built
    with.

    folder: looked into first. Raises Unusable."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not (name.startswith(("HOROVOD_", "OMPI_")) or says_which_rank(name))
    }
    environment["HOROVOD_CONTROLLER"] = environment["HOROVOD_CPU_OPERATIONS"] = "gloo"
    if folder is not None:
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(folder), environment.get("PYTHONPATH")])
        )
    try:
        done = subprocess.run(
            [sys.executable, "-c", ASK],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unusable(f"it did not answer within {SECONDS} s") from error
    said = done.stdout.partition("FOUND")[2]
    if done.returncode or not said:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise Unusable(lines[-1])
    answer = json.loads(said)
    if answer.pop("size") != 1 or answer.pop("sum") != [1.0] * 4:
        raise Unusable("it adds wrongly")
    return answer


def checks() -> list[tuple[str, bool, str]]:
    """(what was checked, whether it is well, what was found)."""
    horovod = found()
    said = problem()
    if horovod is None or said is not None:
        return [("horovod", False, said or "")]
    rows = [("horovod", True, f"{horovod.version}, built for torch {horovod.torch}")]
    try:
        answer = ask()
    except Unusable as error:
        return [
            *rows,
            (
                "horovod.torch",
                False,
                f"it cannot be used: {error}. Build it anew: distcore-horovod build --force "
                "--install",
            ),
        ]
    can = [name for name in ("gloo", "mpi", "nccl") if answer[name]]
    rows.append(("collectives", bool(can), ", ".join(can) or "none"))
    mpirun = shutil.which("mpirun")
    if mpirun and not answer["mpi"]:
        advice = (
            "it has no MPI: horovodrun works, mpirun does not; distcore-horovod build --mpi yes "
            "--install"
        )
        rows.append(("mpirun", False, f"{mpirun}, but {advice}"))
    else:
        rows.append(("mpirun", True, mpirun or "not installed; horovodrun works without"))
    return rows
