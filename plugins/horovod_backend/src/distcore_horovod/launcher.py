"""Which launcher started this process, read from its environment alone: nothing is imported,
nothing is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

MPI = (
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""Rank, size, local rank and local size as Open MPI (and those built on it) and as MPICH (and
Intel's) say them."""


@dataclass(frozen=True)
class Launched:
    """One process of a launcher. by: "horovodrun" or "mpirun". elastic: ranks may come and go."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    by: str
    elastic: bool = False


def launched(environment: Mapping[str, str] | None = None) -> Launched | None:
    """The launcher's process that this is; None: nobody started it so.

    A group's own variables (a trainer `horovod` on another backend) are not a launcher's: they
    name no rendezvous."""
    found = os.environ if environment is None else environment
    if (
        "HOROVOD_GLOO_RENDEZVOUS_ADDR" in found
        and "HOROVOD_RANK" in found
        and IN_GROUP not in found
    ):
        rank, size, local_rank, local_size = (
            int(found.get(f"HOROVOD_{name}", default))
            for name, default in (
                ("RANK", "0"),
                ("SIZE", "1"),
                ("LOCAL_RANK", "0"),
                ("LOCAL_SIZE", "1"),
            )
        )
        return Launched(
            rank, size, local_rank, local_size, "horovodrun", found.get("HOROVOD_ELASTIC") == "1"
        )
    for rank_name, size_name, local_rank_name, local_size_name in MPI:
        if rank_name in found and size_name in found:
            rank = int(found[rank_name])
            local_rank = int(found.get(local_rank_name, rank))
            return Launched(
                rank,
                int(found[size_name]),
                local_rank,
                int(found.get(local_size_name, 1)),
                "mpirun",
            )
    return None


IN_GROUP = "DISTCORE_HOROVOD_GROUP"
"""Set if this plugin itself wrote Horovod's variables, for a worker group of another backend."""
