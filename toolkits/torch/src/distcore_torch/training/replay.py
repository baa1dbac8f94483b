"""Steps on a GPU whose kernels are launched together, as one CUDA graph for each number of rows.

A step of a small network is some ninety kernels of a few microseconds, and to launch one takes the
processor as long. A graph holds all of them, from the batch to the updated weights, and is launched
at once: the same kernels in the same order with the same random numbers, and so the same bits.

What is captured is done again as it was, so a network is only replayed where its model says that a
number of rows always makes the same kernels (`replayable`), and one that makes the processor wait
for the GPU is not captured at all.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeGuard

import torch

from distcore_core import contracts
from distcore_torch.batch import Batch

log = logging.getLogger("distcore")

WARM_STEPS = 3
"""Steps of a number of rows that are launched kernel by kernel first: what is made in the first
(the optimizer's state, handles of libraries) is there in the next. In the last of them whatever
waits for the GPU is noticed."""

MOST_GRAPHS = 4
"""Numbers of rows that are captured: of a batch, and of an epoch's last. Each keeps memory."""


class _Graph(NamedTuple):
    """batch: what is computed with; a batch's rows are copied there. loss: what a replay leaves."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    loss: torch.Tensor


class Replay:
    """Makes the steps of one rank.

    Args:
        compute: Everything from a batch and one over its global rows to the updated weights;
            returns the loss.
        seed: Sets the random numbers of a step.
        optimizer: All of whose kernels are fused, and read the learning rate from the GPU.
    """

    def __init__(
        self,
        compute: Callable[[Batch, float], torch.Tensor | float],
        seed: Callable[[int], None],
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self._compute, self._seed, self._optimizer = compute, seed, optimizer
        self._graphs: dict[tuple[int, int], _Graph] = {}
        self._met: Counter[tuple[int, int]] = Counter()
        self._given_up = False

    def ready(self, batch: contracts.Batch, global_rows: int) -> TypeGuard[Batch]:
        """Whether a step with this batch can be replayed; captures it where its time has come."""
        key = (batch.rows, global_rows)
        if key in self._graphs:
            return True
        if self._given_up or not isinstance(batch, Batch) or not batch.rows or batch.ragged:
            return False
        if len(self._graphs) >= MOST_GRAPHS:
            return False
        self._met[key] += 1
        if self._met[key] > WARM_STEPS:
            self._capture(key, batch)
        return key in self._graphs

    def step(self, batch: Batch, global_rows: int, step: int) -> torch.Tensor:
        """Update the weights by a batch that is `ready`; the loss."""
        found = self._graphs[batch.rows, global_rows]
        found.batch.packed.copy_(batch.packed)
        self._seed(step)
        found.graph.replay()
        return found.loss

    @contextmanager
    def watching(self, batch: contracts.Batch, global_rows: int) -> Iterator[None]:
        """The block makes a step kernel by kernel. In the last before a capture, notice whatever
        waits for the GPU, which a graph cannot hold."""
        if self._given_up or self._met[batch.rows, global_rows] != WARM_STEPS:
            yield
            return
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode("default")
        waits = [each for each in caught if "synchronizing CUDA operation" in str(each.message)]
        for each in caught:
            if each not in waits and "Synchronization debug mode" not in str(each.message):
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        if waits:
            where = f"{Path(waits[0].filename).name}:{waits[0].lineno}"
            self._give_up(f"it waits for the GPU ({where})")

    def _capture(self, key: tuple[int, int], batch: Batch) -> None:
        static, graph, stream = batch.copy(), torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        groups = [each for each in self._optimizer.param_groups if "capturable" in each]
        try:
            for group in groups:  # else its step refuses to be captured
                group["capturable"] = True
            # Another thread makes the next batches meanwhile, which is no part of the step.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                loss = self._compute(static, 1.0 / key[1])
        except RuntimeError as error:
            torch.cuda.set_stream(stream)
            # The generator would take itself for captured for ever.
            generator = torch.cuda.default_generators[batch.packed.device.index]
            generator.graphsafe_set_state(generator.clone_state())
            self._give_up(str(error).partition("\n")[0])
        else:
            self._graphs[key] = _Graph(graph, static, torch.as_tensor(loss))
        finally:
            for group in groups:
                group["capturable"] = False

    def _give_up(self, why: str) -> None:
        self._given_up = True
        log.info("The kernels of a step are launched one by one: %s.", why)
