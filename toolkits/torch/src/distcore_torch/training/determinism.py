"""What keeps a run honest and even: ranks compare their weights, random numbers are its own, the collector is rare."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from distcore_core.errors import TrainingError

if TYPE_CHECKING:
    from distcore_torch.training.strategy import Strategy


@torch.no_grad()
def weights_digest(module: torch.nn.Module) -> str:
    """sha256 over names and bits of all parameters and floating-point buffers."""
    digest = hashlib.sha256()
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_weights(module: torch.nn.Module, strategy: Strategy, step: int) -> None:
    """Compare the ranks' weights. Raises TrainingError naming the ranks that differ from most (or rank 0)."""
    if strategy.rank.world == 1:
        return
    digests = strategy.gather(weights_digest(module))
    common = max(digests, key=digests.count)
    others = [rank for rank, digest in enumerate(digests) if digest != common]
    if others:
        raise TrainingError(
            f"After step {step} the weights of rank {', '.join(map(str, others))} differ from those of the others: "
            "the ranks have trained apart. Look for code that uses random numbers or the rank in the model; "
            "the last checkpoint is from before."
        )


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep what exists out of the garbage collector's passes, and make them rare: no pause between steps.

    What is garbage already stays until the end: one pass over all that torch has imported takes 80 ms."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on this thread alone.

    How its kernels cut their work, and so in which order they add, depends on the number of threads: of 1,000 shapes of
    matrix products 60 had other bits with two threads, as had batch norm and the gradient of a convolution."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def own_random_numbers(device: torch.device) -> Iterator[None]:
    """Leave torch's random state as it was: steps reseed it."""
    devices = [device.index] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        yield
