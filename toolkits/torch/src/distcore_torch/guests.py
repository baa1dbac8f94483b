"""What an extension may leave changed of the process: it is put back, and said, for it costs the
run its results, its bits or its end.

Importing this does not import torch: whoever has not imported it has set nothing.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from distcore_torch.signals import ENDING

log = logging.getLogger("distcore")


@contextmanager
def put_back(who: str) -> Iterator[None]:
    """Put back what the block leaves changed, with a warning that begins with `who`.

    Random numbers are left as they are: each step seeds its own, and other threads draw, too."""
    before = {name: value for name, value, _, _ in _settings()}
    try:
        yield
    finally:
        changed = []
        for name, value, first, put in _settings():
            was = before.get(name, first)
            if value != was:
                with suppress(OSError, ValueError):  # the folder is gone
                    put(was)
                    changed.append(name)
        if changed:
            log.warning("%s changed %s; that was undone", who, ", ".join(changed))


def _settings() -> Iterator[tuple[str, Any, Any, Callable[[Any], object]]]:
    """(name, value, what it is at first, how to set it) of each; of torch once it is imported."""
    yield "the working directory", _folder(), None, os.chdir
    for name, number in (("stdout", 1), ("stderr", 2)):
        closed = getattr(getattr(sys, name), "closed", False)
        yield f"sys.{name} (it was closed)", closed, False, partial(_reopen, name, number)
    yield "the recursion limit", sys.getrecursionlimit(), None, sys.setrecursionlimit
    if threading.current_thread() is threading.main_thread():
        handlers = [signal.getsignal(each) for each in ENDING]
        yield "the handlers of signals", handlers, None, _handle
    torch: Any = sys.modules.get("torch")
    if torch is None or getattr(torch.__spec__, "_initializing", False):  # by another thread
        return
    yield "torch's gradients", torch.is_grad_enabled(), True, torch.set_grad_enabled
    default = torch.get_default_dtype()
    yield "torch's default type", default, torch.float32, torch.set_default_dtype
    device, cpu = torch.get_default_device(), torch.device("cpu")
    yield "torch's default device", device, cpu, partial(_compute_on, torch)
    threads = torch.get_num_threads()
    yield "torch's threads", threads, threads, torch.set_num_threads
    for name in ("mkldnn", "cuda"):
        products = getattr(torch.backends, name).matmul
        put = partial(setattr, products, "fp32_precision")
        yield f"torch.backends.{name}.matmul", products.fp32_precision, "none", put


def _folder() -> str | None:
    with suppress(OSError):  # it was removed
        return os.getcwd()
    return None


def _reopen(name: str, number: int, _: bool) -> None:
    stream = os.fdopen(number, "w", buffering=1, errors="replace", closefd=False)
    setattr(sys, name, stream)


def _handle(handlers: list[Any]) -> None:
    for number, handler in zip(ENDING, handlers, strict=True):
        if handler is not None:  # one that Python did not set, and cannot
            signal.signal(number, handler)


def _compute_on(torch: Any, device: Any) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)
