"""Processes that a launcher (torchrun, horovodrun, mpirun, srun) started: which of them this one
is."""

from __future__ import annotations

import os
import re

from distcore_core.contracts import Rank

LAUNCHERS = {
    "HOROVOD_SIZE": "horovodrun",
    "OMPI_COMM_WORLD_SIZE": "mpirun",
    "PMI_SIZE": "mpirun or srun",
}
"""{variable that says how many processes were started together: who sets it}, for launchers whose
processes only a backend of their own joins."""

OF_RANKS = re.compile(
    r"(LOCAL_|GROUP_|ROLE_)?RANK|(LOCAL_|GROUP_|ROLE_)?WORLD_SIZE|MASTER_(ADDR|PORT)|TORCHELASTIC_.*"
    r"|HOROVOD_((LOCAL_|CROSS_)?(RANK|SIZE)|GLOO_RENDEZVOUS_.*|ELASTIC|HOSTNAME)"
    r"|OMPI_COMM_WORLD_.*|PMIX?_(?!MCA_).*|MPI_LOCAL.*|SLURM_(STEP_NUM_TASKS|PROCID|LOCALID)"
)
"""The variables by which torchrun, horovodrun, mpirun and srun tell a process which rank it is, and
how it meets the others: none that sets how they work."""


def launched_rank() -> Rank | None:
    """The rank that torchrun (or whoever sets its variables) started this process as; None:
    nobody did."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if not all(name in os.environ for name in names):
        return None
    return Rank(
        index=int(os.environ["RANK"]),
        world=int(os.environ["WORLD_SIZE"]),
        local_rank=int(os.environ.get("LOCAL_RANK", os.environ["RANK"])),
    )


def is_other_rank() -> bool:
    """Whether this process is such a rank, and not rank 0."""
    rank = launched_rank()
    return rank is not None and rank.index > 0


def launched_apart() -> tuple[str, int] | None:
    """A launcher that started this process among others, which know nothing of each other here, and
    how many they are; None: nobody did, or `launched_rank` knows which of them this is."""
    if "DISTCORE_HOROVOD_GROUP" in os.environ:  # a rank of a trainer's, which no launcher started
        return None
    for variable, launcher in LAUNCHERS.items():
        count = os.environ.get(variable, "")
        if count.isdecimal() and int(count) > 1 and launched_rank() is None:
            return launcher, int(count)
    return None


def tasks_of_srun() -> int:
    """How many tasks srun started together with this process, which may be each for itself; 1 where
    nobody says so, or where another launcher, or Ray, started this process within a task."""
    apart = ("DISTCORE_HOROVOD_GROUP", "RAY_RAYLET_PID", *LAUNCHERS)
    count = os.environ.get("SLURM_STEP_NUM_TASKS", "")
    if (
        not count.isdecimal()
        or launched_rank() is not None
        or not os.environ.keys().isdisjoint(apart)
    ):
        return 1
    return int(count)


def says_which_rank(variable: str) -> bool:
    """Whether a process that is no rank itself, though one started it, must not have the variable:
    it would take itself for that one."""
    return OF_RANKS.fullmatch(variable) is not None
