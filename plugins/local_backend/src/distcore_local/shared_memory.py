"""Gradients of ranks on one machine meet in shared memory: each rank adds what all have written, in
rank order.

Over gloo's loopback sockets a step's gradients are copied through the kernel several times. Here
each rank lays its numbers into its own slot of one shared mapping, waits until all have, and adds
the slots into memory of its own. Two sets of slots alternate, so one wait a step is enough: who
writes a set again has waited once since everyone read it. All ranks add in the same order, so the
sum has the same bits everywhere, whatever their number.

The mapping is an anonymous file (memfd) that other ranks open through rank 0's /proc entry: nothing
is left behind, however a rank ends.
"""

from __future__ import annotations

import mmap
import os
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from distcore_core.errors import RankLost
from distcore_torch.training.strategy import PATIENCE_SECONDS

HEADER = 4096
"""Bytes before the slots: a counter for each rank, a cache line apart."""

LINE = 8
"""64-bit words of a cache line."""

MOST_RANKS, MOST_BYTES = 8, 1 << 30
"""Beyond these, adding all slots in every rank (or the memory they take) costs more than a ring."""

SPINS = 2000
"""Looks at the counters before a waiting rank sleeps between looks; a step's wait is usually
shorter."""

SLEEP_SECONDS = 0.0002
MOST_AT_ONCE = 1.0
"""Seconds that count between two looks at most: a process that was stopped meanwhile has not
waited."""


def possible(world: int, numel: int, dtype: torch.dtype, local_world: int, slots: int = 0) -> bool:
    """Whether ranks can exchange this buffer in shared memory. slots: how many they lay; 0: one
    each.

    All must be on one machine, and its processor must publish writes in order (x86: total store
    order)."""
    size = 2 * (slots or world) * numel * dtype.itemsize
    ordered = platform.machine() in ("x86_64", "AMD64") and platform.system() == "Linux"
    return ordered and local_world == world and world <= MOST_RANKS and size <= MOST_BYTES


class SharedSum:
    """A `flat.Exchange` in shared memory, and a `TreeExchange` of exact training.

    Args:
        rank, world: Which rank this is, of how many.
        numel, dtype: Of a slot.
        gather: Shares values among the ranks (used once, to set up).
        patience: Seconds to wait for the other ranks.
        laid: How many slots each rank lays its numbers into.
        add: Makes the sum of all slots, [slots, numel], in memory that this rank may change; None:
            of one slot each, rank after rank.

    Raises:
        OSError: In every rank, if any rank cannot map the memory.
    """

    def __init__(
        self,
        rank: int,
        world: int,
        numel: int,
        dtype: torch.dtype,
        gather: Callable[[Any], list[Any]],
        *,
        patience: float = PATIENCE_SECONDS,
        laid: Sequence[int] = (),
        add: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self._rank, self._world, self._round, self._patience = rank, world, 0, patience
        laid = laid or [1] * world
        self._mine = slice(sum(laid[:rank]), sum(laid[: rank + 1]))
        self._add = add or self._in_rank_order
        size = HEADER + 2 * sum(laid) * numel * dtype.itemsize
        self._memory, failure = _mapped(rank, size, gather)
        failures = [each for each in gather(failure) if each is not None]
        if failures:
            raise OSError(failures[0])
        assert self._memory is not None
        self._counters = memoryview(self._memory)[:HEADER].cast("q")
        raw = np.frombuffer(self._memory, np.uint8, offset=HEADER)
        self._slots = torch.from_numpy(raw).view(dtype).view(2, sum(laid), numel)
        self._total = torch.zeros(numel, dtype=dtype)

    def slot(self) -> torch.Tensor:
        """Where this rank writes for the next sum, if it is one slot."""
        return self.slots()[0]

    def slots(self) -> list[torch.Tensor]:
        """Where this rank writes for the next sum."""
        return list(self._slots[self._round % 2][self._mine])

    def sum(self) -> torch.Tensor:
        """Wait for all ranks, and add. Raises RankLost naming the ranks that did not come."""
        slots = self._slots[self._round % 2]
        self._round += 1
        self._wait()
        return self._add(slots)

    def _in_rank_order(self, slots: torch.Tensor) -> torch.Tensor:
        torch.add(slots[0], slots[1], out=self._total)
        for other in range(2, self._world):
            self._total += slots[other]
        return self._total

    def close(self) -> None:
        """Let go of the memory; its last holder frees it."""
        self._slots = self._total = torch.zeros(0)
        self._counters.release()

    def _wait(self) -> None:
        counters, target, looks = self._counters, self._round, 0
        counters[self._rank * LINE] = target
        waited, since = 0.0, 0.0
        for rank in range(self._world):
            while counters[rank * LINE] < target:
                looks += 1
                if looks < SPINS:
                    os.sched_yield()
                    continue
                now = time.monotonic()
                waited += min(now - (since or now), MOST_AT_ONCE)
                since = now
                if waited > self._patience:
                    self._give_up()
                time.sleep(SLEEP_SECONDS)

    def _give_up(self) -> None:
        late = [rank for rank in range(self._world) if self._counters[rank * LINE] < self._round]
        raise RankLost(
            f"Rank {', '.join(map(str, late))} did not bring its gradients within "
            f"{self._patience:.0f} s. Look at what it does; the run can be resumed from its last "
            "checkpoint."
        )


def _mapped(
    rank: int, size: int, gather: Callable[[Any], list[Any]]
) -> tuple[mmap.mmap | None, str | None]:
    """The shared mapping, or why there is none; every rank goes through the same calls of
    `gather`."""
    memory, failure, handle = None, None, -1
    if rank == 0:
        try:
            handle = os.memfd_create("distcore-gradients")
            # Reserved now: a machine that is out of memory says so here, not by a signal in the
            # middle of a step.
            os.posix_fallocate(handle, 0, size)
            memory = mmap.mmap(handle, size)
        except OSError as error:
            failure = str(error)
    # What could not be reserved is not handed on: it is shorter than its mapping.
    owner, shared = gather((os.getpid(), handle if memory is not None else -1))[0]
    if rank and shared >= 0:
        try:
            other = os.open(f"/proc/{owner}/fd/{shared}", os.O_RDWR)
            try:
                memory = mmap.mmap(other, size)
            finally:
                os.close(other)
        except OSError as error:
            failure = str(error)
    gather(None)  # all have opened it: rank 0 may close its handle
    if handle >= 0:
        os.close(handle)
    return memory, failure
