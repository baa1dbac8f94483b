"""What keeps a run even: random numbers of its own, a collector that is rare."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from distcore_core.io.atomic import write_file
from distcore_data.seals import sealed
from distcore_data.stores.run_sync import WAITS
from distcore_torch.training.raw import raw_bytes

log = logging.getLogger("distcore")
_training = threading.RLock()
drawing = threading.RLock()
"""Held by whoever draws torch's random numbers, from the seed to the last of them: a model that
another thread loads draws its weights, too, before it reads them."""


def _in_a_fork() -> None:
    """The threads of the parent are not in the child: nobody there waits for one that trains."""
    global _training
    _training = threading.RLock()
    drawing.release()


# A fork waits for whoever draws: torch's generator, too, has a lock, which nobody would give up in
# the child.
os.register_at_fork(
    before=drawing.acquire, after_in_parent=drawing.release, after_in_child=_in_a_fork
)


@torch.no_grad()
def weights_digest(module: torch.nn.Module) -> str:
    """sha256 over names and bits of all parameters and floating-point buffers."""
    digest = hashlib.sha256()
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point():
            digest.update(name.encode())
            digest.update(raw_bytes(tensor.cpu()).numpy().data)
    return digest.hexdigest()


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep what exists out of the garbage collector's passes, and make them rare: no pause between
    steps.

    What is garbage already stays until the end: one pass over all that torch has imported takes
    80 ms. What the program has frozen itself, as servers do before they fork, stays frozen; then
    nothing more is."""
    before, theirs = gc.get_threshold(), gc.get_freeze_count()
    if not theirs:
        gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not theirs:
            gc.unfreeze()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on this thread alone.

    How its kernels cut their work, and so in which order they add, depends on the number of
    threads: of 1,000 shapes of matrix products 60 had other bits with two threads, as had batch
    norm and the gradient of a convolution. A new thread takes what any of them has set last: one
    that began inside another's block has one thread, and must not leave that to all later ones."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_order(device: torch.device) -> Iterator[None]:
    """On a GPU, let torch take kernels that add in the same order each time, where it has one."""
    if device.type != "cuda":
        yield
        return
    settings: Any = torch.utils.deterministic
    mode, fill = torch.get_deterministic_debug_mode(), settings.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("warn")
    settings.fill_uninitialized_memory = False  # it only helps to find faults
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        settings.fill_uninitialized_memory = fill


@contextmanager
def own_random_numbers(device: torch.device) -> Iterator[None]:
    """Leave torch's random state as it was: steps reseed it."""
    devices = [device.index] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        yield


@contextmanager
def one_training(directory: Path | None = None) -> Iterator[None]:
    """Let a training that another thread of this process begins wait for this one: torch's random
    numbers, its number of threads and the collector's habits are the process's, so weights would
    depend on which thread comes first.

    directory: the run's, which has the file WAITS for as long as it waits, for `distcore runs`."""
    turn = _training
    if not turn.acquire(blocking=False):
        log.info(
            "Another thread of this process trains; waiting for it, because torch's random numbers "
            "are the process's. Runs beside one another need processes of their own."
        )
        if directory is not None:
            with suppress(OSError):  # it is only told
                write_file(directory / WAITS, sealed({"for": "another training of its process"}))
        turn.acquire()
    try:
        if directory is not None:  # also one that a killed process left
            with suppress(OSError):
                (directory / WAITS).unlink(missing_ok=True)
        yield
    finally:
        turn.release()


@contextmanager
def initial_weights() -> Iterator[None]:
    """The block in which a network is built; torch's random state is as before afterwards."""
    with drawing, torch.random.fork_rng(devices=[]):
        yield
