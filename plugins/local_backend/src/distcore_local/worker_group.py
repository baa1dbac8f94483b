"""A group on this machine: its ranks are started together, watched, ended together, and started
again when one is lost.

torch's elastic agent does the same through a key-value store that listens on every interface and
whose values it unpickles. Here ranks are told everything through their own pipe, and they meet in a
file in a folder of their user's.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NoReturn

from distcore_core.contracts import Rank, WorkerGroup
from distcore_core.errors import DistcoreError, TrainingError
from distcore_data.figures import several
from distcore_data.os_errors import FULL, explained
from distcore_data.temporaries import temporary_folder
from distcore_local.rank import Orders, Told, main
from distcore_torch.signals import ENDING, how_it_ended
from distcore_torch.training.heartbeat import FILE, WAITING, Listener
from distcore_torch.training.interrupt import Interrupt
from distcore_torch.training.meeting import STORE
from distcore_torch.training.stalls import Watch, Watched

MEETING_BYTES = 1024
"""Of the file where the ranks meet, for each rank; its addresses take a quarter of it."""

LOOK_SECONDS = 0.25
"""How often the ranks are looked at; an end is noticed at once."""

LATER_SECONDS = 1.0
"""How long one that raised waits to be believed: mostly another rank died, and it lost the
connection to it."""

ALONE_SECONDS = 5.0
"""How long ranks that are to end may wait for one that is gone; what they wait for will never
come."""

log = logging.getLogger("distcore")


@dataclass(frozen=True)
class Loss:
    """Why an attempt failed. text: in words, without a full stop. error: the rank's own, if it
    is one of distcore's. cause: what the system said, if a disk or a limit is to blame."""

    text: str
    error: DistcoreError | None = None
    trace: str = ""
    cause: OSError | None = None


def run(group: WorkerGroup, threads: int) -> list[Any]:
    """Run the worker group to its end; results in rank order. threads: of a rank.

    Raises:
        DistcoreError: A rank raised it and would raise it again, so it was not started again.
        TrainingError: A rank was lost once too often; names rank, process, and exit code or signal.
        Stopped: Somebody asked to stop; the ranks have had their time to save a checkpoint.
    """
    payload = pickle.dumps((group.function, group.arguments))
    # The ranks' own time ends first.
    with Interrupt(group.grace_seconds + LATER_SECONDS) as interrupt:
        for attempt in range(group.max_retries + 1):
            with (
                temporary_folder("group") as folder,
                Attempt(group, threads, payload, folder, attempt) as ranks,
            ):
                found = ranks.wait(interrupt)
            if not isinstance(found, Loss):
                return found
            if attempt == group.max_retries or (found.error is not None and found.error.recurs):
                _give_up(found, attempt)
            log.warning(
                "%s%s. All ranks were started again (%d of at most %d times); they go on from the "
                "last checkpoint.",
                *(found.text[0].upper(), found.text[1:], attempt + 1, group.max_retries),
            )
    raise AssertionError("the last attempt returns or raises")


def _give_up(loss: Loss, restarts: int) -> NoReturn:
    if loss.error is not None:
        loss.error.add_note(loss.trace)
        raise loss.error from loss.cause
    often = f" after {several(restarts, 'restart')}" if restarts else ""
    error = TrainingError(f"Training stopped{often}: {loss.text}.")
    if loss.trace:
        error.add_note(loss.trace)
    raise error from loss.cause


def _unready(text: str) -> TrainingError:
    return TrainingError(
        f"Training stopped: {text}, outside of it; its error stands above. Each worker reads the "
        'program that started it: put what that does under `if __name__ == "__main__":`.'
    )


class Attempt:
    """The ranks of one attempt, from their start to their end. folder: theirs alone, for as long
    as they live."""

    def __init__(
        self, group: WorkerGroup, threads: int, payload: bytes, folder: Path, number: int
    ) -> None:
        self.group, self.threads, self.payload, self.folder, self.number = (
            group,
            threads,
            payload,
            folder,
            number,
        )
        self.processes: list[SpawnProcess] = []
        self.ears: dict[int, connection.Connection] = {}
        self.told: dict[int, Told] = {}
        self._watch = Watch([], group.hang_seconds)
        self._raised_at = 0.0

    def __enter__(self) -> Attempt:
        context = multiprocessing.get_context("spawn")
        resource_tracker.ensure_running()  # here, because it lifts the block of signals
        try:
            with _held_back():
                listeners = [Listener(self._heartbeat(rank)) for rank in range(self.group.ranks)]
                self._check_room()
                for rank, listener in enumerate(listeners):
                    hear, say = context.Pipe(duplex=False)
                    self.ears[rank] = hear
                    process = context.Process(
                        target=main,
                        args=(self._orders(rank), self.payload, say),
                        name=f"distcore-rank-{rank}",
                    )
                    with say:
                        process.start()
                    self.processes.append(process)
                    self._watch.ranks.append(Watched(rank, process.pid or 0, listener))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def wait(self, interrupt: Interrupt) -> list[Any] | Loss:
        """Results in rank order, or why there are none. Raises Stopped if somebody asked for it."""
        while True:
            living = [each for each in self.processes if each.exitcode is None]
            open_ears = [ear for rank, ear in self.ears.items() if rank not in self.told]
            connection.wait([*open_ears, *(each.sentinel for each in living)], LOOK_SECONDS)
            self._hear()
            if interrupt.asked:
                self._pass_on(interrupt.signal)
                self._let_end()
                self._raise_unsaved()
                raise interrupt.stopped(self._last_words())
            if any(told.kind == "stopped" for told in self.told.values()):
                self._let_end(time.monotonic() + self.group.grace_seconds)
                self._raise_unsaved()
                raise next(
                    told.error
                    for told in self.told.values()
                    if told.kind == "stopped" and told.error
                )
            results = [
                self.told[rank].value
                for rank in sorted(self.told)
                if self.told[rank].kind == "result"
            ]
            if len(results) == self.group.ranks:
                return results
            loss = self._loss() or self._hung()
            if loss is not None:
                return loss

    # -------------------------------------------------------------- inside

    def _orders(self, rank: int) -> Orders:
        world = self.group.ranks
        environment = {
            "RANK": rank,
            "WORLD_SIZE": world,
            "LOCAL_RANK": rank,
            "LOCAL_WORLD_SIZE": world,
            "OMP_NUM_THREADS": self.threads,
            STORE: self.folder / "store",
            FILE: self._heartbeat(rank),
            "DISTCORE_ATTEMPT": self.number,
        }
        told = {name: str(value) for name, value in environment.items()}
        return Orders(
            Rank(index=rank, world=world, local_rank=rank), self.threads, told, os.getpid()
        )

    def _check_room(self) -> None:
        """Raise TrainingError if the disk has no room for the file where the ranks meet: torch,
        which writes it, names neither."""
        what, advice = "the file where the ranks meet", "point TMPDIR to a larger disk"
        with explained(self.folder, what, TrainingError, advice=advice, only=FULL):
            path = self.folder / "room"
            try:
                path.write_bytes(bytes(MEETING_BYTES * self.group.ranks))
            finally:
                path.unlink(missing_ok=True)

    def _hear(self) -> None:
        """Take what ranks have said; one that ends without a word has closed its pipe."""
        for rank, ear in self.ears.items():
            with suppress(EOFError, OSError):
                if rank not in self.told and ear.poll():
                    self.told[rank] = ear.recv()

    def _loss(self) -> Loss | None:
        """The rank to blame: one that died without a word, else one that raised something."""
        for rank, process in enumerate(self.processes):
            if process.exitcode is not None and rank not in self.told:
                self._hear()  # its last word may have come between the two looks
                if rank not in self.told:
                    text = f"rank {rank} (process {process.pid}) {how_it_ended(process.exitcode)}"
                    # Python's own, for an error outside of `main`: another attempt meets it again.
                    return Loss(text, _unready(text) if process.exitcode == 1 else None)
        blamed = self._blamed()
        if blamed is None:
            return None
        self._raised_at = self._raised_at or time.monotonic()
        waited = time.monotonic() - self._raised_at
        return None if waited < LATER_SECONDS and not blamed[1].recurs else self._loss_of(*blamed)

    def _blamed(self) -> tuple[int, Told] | None:
        """Of the ranks that raised, the one to blame, and what it told."""
        raised = {rank: told for rank, told in self.told.items() if told.kind == "raised"}
        own = {rank: told for rank, told in raised.items() if told.recurs}
        # The others lose their connection to one whose disk is full, and may be heard first.
        refused = {rank: told for rank, told in raised.items() if told.cause is not None}
        return next(iter((own or refused or raised).items()), None)

    def _raise_unsaved(self) -> None:
        """Raise what a rank met while it was to end, as a checkpoint for which there is no room;
        but nothing that may come of the others' end."""
        blamed = self._blamed()
        if blamed is not None and (blamed[1].recurs or blamed[1].cause is not None):
            _give_up(self._loss_of(*blamed), 0)

    def _loss_of(self, rank: int, told: Told) -> Loss:
        error = told.error if isinstance(told.error, DistcoreError) else None
        text = (told.text or str(error)).strip().rstrip(".")
        return Loss(
            f"rank {rank} (process {self.processes[rank].pid}) raised {text}",
            error,
            told.trace,
            told.cause,
        )

    def _hung(self) -> Loss | None:
        """Tell of ranks that make no progress; the one that has made none for too long. Those that
        are done need none; once one raised, the others wait for it, and it is to blame."""
        if any(told.kind != "result" for told in self.told.values()):
            return None
        self._watch.ranks = [each for each in self._watch.ranks if each.rank not in self.told]
        hung = self._watch.look()
        return None if hung is None else Loss(hung[1])

    def _heartbeat(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}"

    def _pass_on(self, number: int) -> None:
        for process in self._living():
            with suppress(ProcessLookupError):
                os.kill(process.pid or 0, number)

    def _let_end(self, until: float = math.inf) -> None:
        """Wait for all ranks to end, but for those that only wait for one that has ended.

        A second signal, or the end of the time that the first one gives, raises here."""
        busy_at = time.monotonic()
        while self._living() and len(self.told) < self.group.ranks and time.monotonic() < until:
            connection.wait([each.sentinel for each in self._living()], LOOK_SECONDS)
            self._hear()
            if not self._left_alone():
                busy_at = time.monotonic()
            elif time.monotonic() - busy_at > ALONE_SECONDS:
                break

    def _left_alone(self) -> bool:
        """Whether a rank has ended, and all others wait for the other ranks: one that saves or
        computes does not."""
        others = [each for each in self._watch.ranks if each.rank not in self.told]
        waiting = [each for each in others if each.listener.pulse().doing == WAITING]
        return len(waiting) == len(others) < self.group.ranks

    def _last_words(self) -> str:
        return next(
            (str(told.error) for _, told in sorted(self.told.items()) if told.kind == "stopped"), ""
        )

    def _living(self) -> list[SpawnProcess]:
        return [each for each in self.processes if each.exitcode is None]

    def _end(self) -> None:
        """Nobody is left afterwards. A rank is killed: whatever it was writing is whole, or not
        there."""
        for rank, process in enumerate(self.processes):
            if process.ident is not None and process.exitcode is None and rank not in self.told:
                process.kill()
        for process in self.processes:
            process.join(LATER_SECONDS * 5)
            if process.exitcode is None:
                process.kill()
                process.join()
        for ear in self.ears.values():
            ear.close()
        self._watch.close()


@contextmanager
def _held_back() -> Iterator[None]:
    """A process that is started inside begins with these signals blocked, and lets them in once
    it can answer them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
