"""Ranks that make no progress, named by whoever watches them: rank, process, host, and where they
stand.

A rank that waits for others is not to blame. Only time that the watcher itself has seen pass
counts, so a machine that sleeps, or a watcher that was stopped with its ranks, blames nobody.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from distcore_data.processes import status_of
from distcore_torch.training.heartbeat import (
    DOING,
    PREPARING,
    SAVING,
    STARTING,
    TELLING,
    WAITING,
    Listener,
    Pulse,
)

TOLD_SECONDS = float(os.environ.get("DISTCORE_TOLD_SECONDS", 20.0))
"""How long a rank may make no progress before it is told. Only tests set the variable."""

BEGIN_SECONDS = 3 * TOLD_SECONDS
"""The same while it starts, prepares, saves or tells extensions."""

STEPS = 10
"""And never less than so many of its own steps."""

LEAST_STEPS = 3
"""A rank is never ended before so many of its own steps, whatever `trainer.hang_seconds` says."""

MOST_AT_ONCE = 2.0
"""Seconds that count between two looks at most."""

ANSWER_SECONDS = 2.0
"""How long a rank may take to say where it stands; one whose library holds Python's lock never
does."""

log = logging.getLogger("distcore")


@dataclass
class Watched:
    """A rank and what was seen of it. still: seconds without a sign of progress. told: until when
    it was told.

    ours: whether this watcher tells of it; else another one does, and it is only looked at to
        see who is to blame."""

    rank: int
    process: int
    listener: Listener
    pulse: Pulse = field(default_factory=Pulse)
    still: float = 0.0
    told: float = 0.0
    ours: bool = True

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.process} on {socket.gethostname()})"

    @property
    def patience(self) -> float:
        """Seconds without progress until it is told."""
        long = (STARTING, PREPARING, SAVING, TELLING)
        least = BEGIN_SECONDS if self.pulse.doing in long else TOLD_SECONDS
        return max(least, STEPS * self.pulse.step_seconds)

    def limit(self, hang_seconds: float) -> float:
        """Seconds without progress until it is given up."""
        least = BEGIN_SECONDS if self.pulse.doing in (STARTING, PREPARING, TELLING) else 0.0
        return max(hang_seconds, least, LEAST_STEPS * self.pulse.step_seconds)


class Watch:
    """Looks at ranks of this machine. hang_seconds: see `trainer.hang_seconds`; None: a rank is
    only told of.

    tell(text): where warnings go; the log. world: ranks of the run, if there may be others than
    these."""

    def __init__(
        self,
        ranks: list[Watched],
        hang_seconds: float | None = None,
        tell: Callable[[str], None] | None = None,
        world: int = 0,
    ) -> None:
        self.ranks, self.hang_seconds, self.tell, self.world = (
            ranks,
            hang_seconds,
            tell or _warn,
            world,
        )
        self._looked = time.monotonic()

    def look(self) -> tuple[Watched, str] | None:
        """Tell of ranks that make no progress; one to give up, with how it stands in words (no
        full stop), or None."""
        now = time.monotonic()
        passed = min(now - self._looked, MOST_AT_ONCE)
        self._looked = now
        for each in self.ranks:
            self._count(each, passed)
        # What never had a heartbeat may be somebody else's function, which has none.
        known = [each for each in self.ranks if each.pulse.beats or stopped(each.process)]
        blamed = [each for each in known if each.pulse.doing != WAITING or stopped(each.process)]
        if not blamed and len(self.ranks) >= self.world:
            # All wait, for what none of them will do: nobody in particular is to blame.
            blamed = known
        ours = [each for each in blamed if each.ours]
        for each in sorted(ours, key=lambda each: each.still, reverse=True):
            if each.still > max(each.patience, 2 * each.told):
                each.told = each.still
                said = standing(each)
                self.tell(f"{said[0].upper()}{said[1:]}.")
            if self.hang_seconds is not None and each.still > each.limit(self.hang_seconds):
                return each, standing(each)
        return None

    def _count(self, each: Watched, passed: float) -> None:
        pulse = each.listener.pulse()
        if pulse.beats == each.pulse.beats:
            each.still += passed
            return
        if each.told:
            self.tell(f"R{str(each)[1:]} makes progress again.")
        each.pulse, each.still, each.told = pulse, 0.0, 0.0

    def close(self) -> None:
        """Let go of the heartbeats."""
        for each in self.ranks:
            each.listener.close()


def _warn(text: str) -> None:
    log.warning("%s", text)


def standing(each: Watched) -> str:
    """`rank 1 (process 123 on host) has made no progress for 34 s: …`, without a full stop."""
    where = f"it is {DOING[each.pulse.doing]}"
    if each.pulse.step:
        where += f", after {each.pulse.step} steps"
    if stopped(each.process):
        how = "; the process is stopped (by SIGSTOP, or a debugger); `kill -CONT` lets it go on"
    else:
        calls = each.listener.calls(ANSWER_SECONDS) if each.pulse.beats else []
        how = f"; its calls, the innermost first: {' < '.join(calls)}" if calls else ""
    return f"{each} has made no progress for {each.still:.0f} s: {where}{how}"


def stopped(process: int) -> bool:
    """Whether the process is stopped, or traced."""
    with suppress(OSError, IndexError):
        return status_of(process)[0] in "Tt"
    return False


def end(each: Watched) -> None:
    """Kill a rank that was given up, also if it is stopped."""
    with suppress(ProcessLookupError):
        os.kill(each.process, signal.SIGKILL)
