"""What the suite of backends has ranks and tasks do; nothing heavy until a rank runs it."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.errors import DataError

if TYPE_CHECKING:
    from distcore_core.contracts import Rank, WorkerGroup

PATIENCE = 60.0
"""Seconds that a rank waits for what should come long before."""

TOLD = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""What the environment of a rank says, as torchrun would."""


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Wait for a condition; whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def meet(rank: Rank, folder: str, size: int) -> dict[str, Any]:
    """Add up over all ranks with torch, and say who this is; rank 0 ends last.

    size: bytes of the result."""
    import torch
    import torch.distributed as dist

    from distcore_torch.training.meeting import fresh_store

    store = fresh_store(rank)
    dist.init_process_group("gloo", store=store, rank=rank.index, world_size=rank.world)
    total = torch.tensor([10.0**rank.index])
    dist.all_reduce(total)
    dist.destroy_process_group()
    if rank.index:
        Path(folder, f"done-{rank.index}").touch()
    else:
        others = [Path(folder, f"done-{index}") for index in range(1, rank.world)]
        until(lambda: all(each.exists() for each in others))
    return {
        "index": rank.index,
        "world": rank.world,
        "local_rank": rank.local_rank,
        "sum": float(total),
        "host": socket.gethostname(),
        "node": os.environ.get("RAY_NODE_ID", ""),
        "process": os.getpid(),
        "threads": torch.get_num_threads(),
        "told": {name: os.environ.get(name) for name in TOLD},
        "large": bytes(size),
    }


def die(rank: Rank, folder: str, times: int) -> tuple[int, int, int]:
    """SIGKILL the last rank in so many attempts, while the others wait for it; every rank leaves
    a line for each attempt in `rank-<n>`, and says who it is."""
    _begin(rank, folder)
    attempt = len(attempts(folder, rank.index))
    last = rank.world - 1
    if rank.index == last and attempt <= times:
        others = range(last)
        until(lambda: all(len(attempts(folder, each)) >= attempt for each in others))
        os.kill(os.getpid(), signal.SIGKILL)
    if rank.index != last and not until(lambda: len(attempts(folder, last)) > times):
        Path(folder, "outlived").touch()
    return rank.index, rank.world, rank.local_rank


def _begin(rank: Rank, folder: str) -> None:
    """Leave the process of this attempt as a line in `rank-<n>`."""
    with open(Path(folder, f"rank-{rank.index}"), "a") as file:
        file.write(f"{os.getpid()}\n")


def attempts(folder: str | Path, rank: int) -> list[str]:
    """The processes of a rank's attempts so far."""
    path = Path(folder, f"rank-{rank}")
    return path.read_text().splitlines() if path.exists() else []


def stay(rank: Rank, folder: str) -> None:
    """Do nothing for a long while; every rank leaves its process in `rank-<n>`."""
    _begin(rank, folder)
    time.sleep(PATIENCE)


def lead(name: str, options: Mapping[str, Any], group: WorkerGroup) -> None:
    """Run a worker group by a backend of this process."""
    from distcore_core.contracts import BACKEND
    from distcore_core.registry.manager import Plugins

    Plugins().make(BACKEND, name, options).run_group(group)


def refuse(rank: Rank, folder: str) -> None:
    """Raise, in every rank, what another attempt would meet again."""
    _begin(rank, folder)
    raise DataError("the column 'colour' is missing")


@dataclass(frozen=True)
class Noted:
    """A task's function that leaves a mark of each item it begins with."""

    folder: str

    def __call__(self, item: int) -> int:
        Path(self.folder, f"begun-{item}").touch()
        return item


@dataclass(frozen=True)
class DamagedAt:
    """A task's function that raises one of distcore's errors at an item; results are large."""

    item: int

    def __call__(self, item: int) -> bytes:
        if item == self.item:
            raise DataError(f"row {item} is damaged")
        return bytes([item]) * (1 << 20)


@dataclass(frozen=True)
class KilledOnce:
    """A task's function that SIGKILLs its process at an item, the first time. driver: the process
    that must not die."""

    folder: str
    item: int
    driver: int

    def __call__(self, item: int) -> int:
        mark = Path(self.folder, "died")
        if item == self.item and os.getpid() != self.driver and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item * item


def processes_of(parent: int) -> set[int]:
    """Living processes that a process of this machine started, but for helpers of Python's own."""
    found = set()
    for path in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):  # a thread that ended meanwhile
            found |= {int(each) for each in path.read_text().split()}
    return {each for each in found if "resource_tracker" not in _words(each)}


def alive(process: int) -> bool:
    """Whether a process of this machine runs."""
    return Path(f"/proc/{process}").exists() and " Z " not in _stat(process)


def _words(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


def _stat(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return " Z "
