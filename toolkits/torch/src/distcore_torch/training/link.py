"""What a collective costs between two processes of this machine: seconds a message, and a byte."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist

from distcore_core.contracts import Rank
from distcore_core.errors import TrainingError
from distcore_data.temporaries import temporary_folder
from distcore_torch.training import meeting, parents

SMALL, LARGE = 256, 1 << 21
"""Numbers of 4 bytes in a message that costs its latency, and in one that costs its bytes."""

TIMES = 30

LOOK_SECONDS = 0.1
"""How often it is looked whether both are there."""


def measured() -> tuple[float, float]:
    """(seconds a message, seconds a byte): of what one of two ranks sends over gloo and the
    loopback, in an all-reduce of two messages, each of half the bytes."""
    context = multiprocessing.get_context("spawn")
    with temporary_folder("link") as folder:
        hear, say = context.Pipe(duplex=False)
        ranks = [
            context.Process(target=_rank, args=(index, 2, folder / "store", say, os.getpid()))
            for index in range(2)
        ]
        for each in ranks:
            each.start()
        say.close()
        try:
            while not hear.poll(LOOK_SECONDS):
                if any(each.exitcode for each in ranks):
                    raise EOFError  # the other one would wait for it for half an hour
            small, large = hear.recv()
        except EOFError:
            raise TrainingError(
                "Two processes of this machine could not meet over gloo and the loopback."
            ) from None
        finally:
            for each in ranks:
                each.kill()
                each.join()
    message = small / 2
    return message, max(0.0, large - small) / (4 * LARGE)


def _rank(index: int, world: int, store: Path, say: Connection, parent: int) -> None:
    parents.die_with(parent)
    os.environ["LOCAL_WORLD_SIZE"] = str(world)
    meeting.stay_on_loopback(Rank(index=index, world=world, local_rank=index))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=index, world_size=world)
    found = [_least(torch.zeros(numbers)) for numbers in (SMALL, LARGE)]
    if index == 0:
        say.send(found)
    dist.destroy_process_group()


def _least(values: torch.Tensor) -> float:
    times = []
    for _ in range(TIMES):
        started = time.perf_counter()
        dist.all_reduce(values)
        times.append(time.perf_counter() - started)
    return min(times)
