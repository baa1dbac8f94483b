"""A rank that the others wait for, named once by its share of the waiting. Nobody is ended for
being slow."""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING

from distcore_torch.training.heartbeat import (
    AT_STEPS,
    COMPUTING,
    DOING,
    LOADING,
    WAITING,
    Heartbeat,
)

if TYPE_CHECKING:
    from distcore_torch.training.strategy import Strategy

LEAST_SECONDS = 20.0
"""Of steps, before anybody is named."""

SHARE = 0.3
"""Of the others' time that they wait for one rank."""

log = logging.getLogger("distcore")


class Stragglers:
    """Compares the ranks' time after each round; every rank calls `look`, and rank 0 tells."""

    def __init__(self) -> None:
        self._told = False
        self._before = [0.0] * len(DOING)

    def look(self, strategy: Strategy, beat: Heartbeat) -> None:
        """Name the slowest rank, at most once a run, if the others have waited for it."""
        if strategy.rank.world == 1:
            return
        seconds = list(beat.pulse.seconds)
        since = [now - before for now, before in zip(seconds, self._before, strict=True)]
        self._before = seconds
        ranks = strategy.gather((since, os.getpid(), socket.gethostname()))
        if strategy.rank.index or self._told:
            return
        said = slowest(ranks)
        if said is not None:
            self._told = True
            log.warning("%s", said)


def slowest(ranks: list[tuple[list[float], int, str]]) -> str | None:
    """What to say of the rank that the others wait for, or None.

    Args:
        ranks: Of each rank: seconds in each activity, its process, its host.
    """
    busy = [seconds[LOADING] + seconds[COMPUTING] for seconds, _, _ in ranks]
    total = [sum(seconds[each] for each in AT_STEPS) for seconds, _, _ in ranks]
    slow = max(range(len(ranks)), key=busy.__getitem__)
    others = [rank for rank in range(len(ranks)) if rank != slow]
    if max(total) < LEAST_SECONDS:
        return None
    shares = [ranks[rank][0][WAITING] / total[rank] for rank in others if total[rank]]
    share = sum(shares) / len(shares) if shares else 0.0
    if share < SHARE or busy[slow] < 1.5 * max(busy[rank] for rank in others):
        return None
    seconds, process, host = ranks[slow]
    loads = seconds[LOADING] / busy[slow]
    return (
        f"Rank {slow} (process {process} on {host}) is the slowest: the other ranks have waited "
        f"for it {share:.0%} of their time, and {loads:.0%} of its own went into loading. Training "
        "goes on."
    )
