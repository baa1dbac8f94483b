"""Checkpoints saved beside training: the state is copied, and a thread writes the copy while steps
go on.

The thread spends its time in system calls and digests, for which it does not hold Python's lock. It
writes one checkpoint after the other, so they become visible in their order. Two may be in flight;
who saves a third waits. Memory: two copies of weights and optimizer state in rank 0; one, where it
is LARGE.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

from distcore_core.contracts import JSON, ResultsStore
from distcore_core.errors import CheckpointError
from distcore_torch.training import checkpoint
from distcore_torch.training.heartbeat import SAVING, Heartbeat
from distcore_torch.training.ledger import Entry, Ledger

IN_FLIGHT = 2
"""Checkpoints that are copied and not yet whole."""

LARGE = 256 << 20
"""Bytes of a copy of which there is one alone: who saves another waits for the one before."""

Tensors = dict[str, torch.Tensor]


class _Job(NamedTuple):
    """One checkpoint under way. buffers: what it is written from."""

    step: int
    future: Future[Path]
    buffers: Tensors


class Saver:
    """Saves rank 0's checkpoints; used from one thread.

    Args:
        directory: The folder of checkpoints.
        mirror: The bucket that they are copied to, or None.
        ledger: Forced to disk before each, or None.
        beat: Says so while training waits for the disk.
        tell: Called with step and path, in the thread that uses this, once a checkpoint is whole.
    """

    def __init__(
        self,
        directory: Path,
        mirror: ResultsStore | None,
        ledger: Ledger | None,
        beat: Heartbeat,
        tell: Callable[[int, Path], object] | None,
    ) -> None:
        # Absolute, since an extension may change the working directory for a moment meanwhile.
        self._told, self._directory = directory, directory.absolute()
        self._mirror, self._ledger = mirror, ledger
        self._beat, self._tell = beat, tell
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="distcore-checkpoint")
        self._jobs: deque[_Job] = deque()
        self._free: list[Tensors] = [{} for _ in range(IN_FLIGHT)]
        self._failed: BaseException | None = None
        self._given_up = False

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Until the block ends checkpoints may be saved; then all of them are whole. A ctrl-C does
        not wait."""
        try:
            yield
            self.wait()
        except KeyboardInterrupt:
            self._given_up = True
            raise
        finally:
            for job in self._jobs:
                if self._given_up:
                    job.future.cancel()
            with self._beat.during(SAVING):
                self._pool.shutdown()

    def save(
        self,
        step: int,
        changing: Mapping[str, torch.Tensor],
        kept: Mapping[str, torch.Tensor],
        state: JSON,
    ) -> None:
        """Copy the state of a step, and have it written.

        Args:
            step: Of the checkpoint.
            changing: Tensors that the next step changes; they are copied.
            kept: Tensors that nobody will change; they are not.
            state: Plain JSON of its own.

        Raises:
            CheckpointError: A checkpoint before could not be written. This one is not either.
        """
        self.look()
        with self._beat.during(SAVING):
            size = sum(each.nbytes for each in changing.values())
            while not self._free or (self._jobs and size > LARGE):
                self._first()
            buffers = copied(changing, self._free.pop())
        entries = self._ledger.waiting() if self._ledger is not None else []
        future = self._pool.submit(self._write, step, {**buffers, **kept}, state, entries)
        self._jobs.append(_Job(step, future, buffers))

    def look(self) -> None:
        """Tell of checkpoints that are whole by now. Raises CheckpointError if one could not be
        written."""
        while self._jobs and self._jobs[0].future.done():
            self._first()

    def wait(self) -> None:
        """Return when every checkpoint is whole. Raises CheckpointError if one could not be
        written."""
        with self._beat.during(SAVING):
            while self._jobs:
                self._first()

    # -------------------------------------------------------------- inside

    def _first(self) -> None:
        """Wait for the first checkpoint under way."""
        job = self._jobs[0]
        path = job.future.result()
        self._jobs.popleft()
        self._free.append(job.buffers)
        if self._tell is not None:
            self._tell(job.step, path)

    def _write(self, step: int, tensors: Tensors, state: JSON, entries: list[Entry]) -> Path:
        """In the thread."""
        if self._failed is not None:  # the order of checkpoints has no gap
            raise self._failed
        try:
            return self._written(step, tensors, state, entries)
        except BaseException as error:
            self._failed = error
            raise

    def _written(self, step: int, tensors: Tensors, state: JSON, entries: list[Entry]) -> Path:
        if self._ledger is not None:
            self._ledger.write(entries)
        if self._mirror is not None:  # what tells of the run up to here
            self._mirror.put_files(self._directory.parent)
        path = checkpoint.save(self._directory, step, tensors, state, going_on=self._going_on)
        if self._mirror is not None:
            checkpoint.copy_to(self._mirror, path)
        return self._told / path.name

    def _going_on(self) -> None:
        """Raise if nobody waits for the checkpoint any more."""
        if self._given_up:
            raise CheckpointError("The run was ended before this checkpoint was written.")


@torch.no_grad()
def copied(tensors: Mapping[str, torch.Tensor], buffers: Tensors) -> Tensors:
    """The tensors, copied to the CPU into buffers of an earlier copy, if these fit."""
    for name in buffers.keys() - tensors.keys():
        del buffers[name]
    for name, tensor in tensors.items():
        buffer = buffers.get(name)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffers[name] = buffer = torch.empty(tensor.shape, dtype=tensor.dtype)
        buffer.copy_(tensor)
    return buffers
