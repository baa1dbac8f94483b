"""A process group whose ranks come and go (horovodrun's elastic mode): after a loss those left meet
again and go on.

A rank that is lost breaks every collective (`Broken`). Then all that are left meet again, together
with whoever the launcher has started since, and the leader gives the order that was under way once
more. Rank 0 leads. If the leader is lost, the launcher gives its number to a rank that was there
before; that one comes out of `follow` and carries out the command from its beginning, which finds
the cache built and the checkpoints saved.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distcore_core.errors import DistcoreError, TrainingError
from distcore_core.progress import Progress
from distcore_data.blame import one_line
from distcore_horovod.error_channel import ErrorChannel, named
from distcore_horovod.failure import Failed, failed
from distcore_horovod.launcher import Launched
from distcore_horovod.process_group import Broken, ProcessGroup, leave_process
from distcore_torch.training.meeting import machine

MEET_AGAIN = b"meet again"
"""An order: the launcher has other hosts now."""

HOSTS_CHANGED = "The launcher has other hosts; going on from there with them."

log = logging.getLogger("distcore")


@dataclass(frozen=True)
class Run:
    """A training run of the command: where its results are, and the number of ranks that its
    batches are for."""

    directory: Path | str | None
    planned: int


@dataclass(frozen=True)
class Arrival:
    """What a rank tells the others when they meet. failure: what its part of the last order
    ended with."""

    host: str
    process: int
    runs: tuple[Run, ...]
    failure: Failed | None


class Changes:
    """Whether the launcher has told this process of other hosts; if so, training under way is
    asked to stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told = False
        self._progress: Progress | None = None

    def on_hosts_updated(self, timestamp: int, update: Any) -> None:
        """Called by Horovod, in a thread of its own."""
        with self._lock:
            self._told = True
            if self._progress is not None:
                self._progress.stop = HOSTS_CHANGED

    def watch(self, progress: Progress | None) -> None:
        """Training begins, or (None) ends."""
        with self._lock:
            self._progress = progress
            if progress is not None:
                progress.stop = HOSTS_CHANGED if self._told else False

    @property
    def told(self) -> bool:
        """Since `forget`."""
        return self._told

    def forget(self) -> None:
        """The ranks are about to meet, under the hosts that there are."""
        with self._lock:
            self._told = False


class ElasticProcessGroup(ProcessGroup):
    """runs: of this command so far, in order. inherited: those that a lost leader began and this
    process goes on with.

    changes: whether the launcher has told of other hosts."""

    ended_by_launcher = "The launcher has ended this rank; if others are left, they go on"

    def __init__(self, launched: Launched) -> None:
        self.runs: tuple[Run, ...] = ()
        self.inherited: list[Run] = []
        self.changes = Changes()
        self._failure: Failed | None = None
        super().__init__(launched)
        from horovod.common.elastic import notification_manager

        notification_manager.init()
        notification_manager.register_listener(self.changes)

    # -------------------------------------------------------------- meeting

    def meet(self) -> None:
        """Join whoever is there, as often as one more is lost meanwhile; afterwards all know the
        same.

        Raises, in the leader, what a rank's part of the last order ended with. A process for which
        the launcher has no place any more ends here."""
        from horovod.common.exceptions import HorovodInternalError

        while True:
            try:
                arrivals = self._arrivals()
                break
            except HorovodInternalError:
                self.hvd.shutdown()
        self._failure = None
        self.runs = max((each.runs for each in arrivals), key=len)
        self.introduce([(each.host, each.process) for each in arrivals])
        for each in arrivals:
            if each.failure is not None and self.rank == 0:
                each.failure.raised()

    def open_error_channel(self) -> ErrorChannel:
        """Without a store: ranks tell each other what they ended with when they meet."""
        return ErrorChannel(None, self.rank, self.hosts, self.processes)

    def _arrivals(self) -> list[Arrival]:
        hvd = self.hvd
        try:
            hvd.init()
        except ValueError as error:
            log.warning(
                "This process has no place among the ranks any more, or could not meet them: %s",
                error,
            )
            leave_process(1)
        self.launched = replace(
            self.launched,
            rank=hvd.rank(),
            size=hvd.size(),
            local_rank=hvd.local_rank(),
            local_size=hvd.local_size(),
        )
        mine = Arrival(machine(), os.getpid(), self.runs, self._failure)
        return list(hvd.allgather_object(mine, name="distcore.arrivals"))

    def regroup(self) -> None:
        """Meet again. Raises as `meet`."""
        before, led = list(zip(self.hosts, self.processes, strict=True)), self.rank == 0
        self.changes.forget()
        self.hvd.shutdown()
        self.meet()
        if led and self.rank:
            log.warning("Another rank leads from now on; this process ends.")
            leave_process(1)
        if self.rank == 0:
            self._tell_people(before)

    def _tell_people(self, before: list[tuple[str, int]]) -> None:
        """Who is lost and who is new, as far as this process knew the others."""
        now = list(zip(self.hosts, self.processes, strict=True))
        lost = [named(rank, *each) for rank, each in enumerate(before) if each not in now]
        new = [named(rank, *each) for rank, each in enumerate(now) if each not in before]
        told = [f"{', '.join(lost)} {'is' if len(lost) == 1 else 'are'} gone"] if lost else []
        told += [f"{', '.join(new)} {'has' if len(new) == 1 else 'have'} joined"] if new else []
        if told:
            number = f"{self.size} rank{'s' if self.size > 1 else ''}"
            log.warning("%s. Going on with %s.", "; ".join(told), number)

    # -------------------------------------------------------------- orders

    def everywhere(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """As ProcessGroup's; after a loss the order is given again, to whoever is there."""
        while True:
            try:
                return super().everywhere(function, *arguments)
            except Broken:
                self.regroup()

    def meet_again(self) -> None:
        """Let all meet under the hosts that there are now."""
        try:
            self._tell(MEET_AGAIN)
        except Broken:
            pass
        self.regroup()

    def end(self) -> None:
        """Let the followers go, also if one is lost meanwhile."""
        while not self.over:
            try:
                super().end()
            except Broken:
                self.over = False
                self.regroup()

    def follow(self) -> None:
        """Carry out orders until the leader's process ends (SystemExit 0); returns where this
        process is to lead."""
        level = log.level
        log.setLevel(logging.WARNING)  # the leader tells the story
        while self.rank:
            try:
                order = self._told()
                if order == MEET_AGAIN:
                    self.regroup()
                elif order:
                    self._obey(order)
                else:
                    self._leave()
            except Broken:
                self.regroup()
        log.setLevel(level)
        self.inherited = list(self.runs)
        log.warning(
            "The process that led is gone; this one (process %d) leads from now on.", os.getpid()
        )

    # -------------------------------------------------------------- what ends a rank's part

    def failure(self) -> Exception:
        """What `everywhere` and `follow` make a new start of."""
        return Broken()

    def failed_here(self, error: Exception) -> Broken:
        """This rank's part has failed: the others, who may wait for it, hear of it when all meet
        again."""
        if not isinstance(error, DistcoreError):
            who = named(self.rank, self.hosts[self.rank], self.processes[self.rank])
            told = TrainingError(f"The run stopped: {who} ended: {one_line(error)}")
            told.__cause__ = error
            error = told
        self._failure = failed(self.rank, error)
        return Broken()

    def begins(self, run: Run) -> None:
        """Every rank notes which runs there have been, for the one that may have to lead."""
        if run not in self.runs:
            self.runs = (*self.runs, run)
