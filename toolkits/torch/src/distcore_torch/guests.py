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
    """Put back what the block leaves changed, with a warning that begins with `who`. (For the time
    of a whole run `modes.plain_torch` sets what changes bits.)

    Random numbers are left as they are: each step seeds its own, and other threads draw, too."""
    before = {name: (value, put) for name, value, _, put in _settings()}
    try:
        yield
    finally:
        changed = []
        for name, value, first, put in _settings():
            was, put = before.get(name, (first, put))
            if was is not None and value != was:
                with suppress(OSError, ValueError, RuntimeError):  # the folder is gone, say
                    put(was)
                    changed.append(name)
        if changed:
            log.warning("%s changed %s; that was undone", who, ", ".join(changed))


def _settings() -> Iterator[tuple[str, Any, Any, Callable[[Any], object]]]:
    """(name, value, what it is at first, how to set it) of each; of torch once it is imported."""
    yield "the working directory", _folder(), None, os.chdir
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        put = partial(_open_again, name, number, stream)
        yield f"sys.{name} (it was closed)", getattr(stream, "closed", False), False, put
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
    for kind in ("cpu", "cuda"):
        put = partial(torch.set_autocast_enabled, kind)
        yield f"torch's autocast ({kind})", torch.is_autocast_enabled(kind), False, put
    one_dnn = torch.backends.mkldnn
    yield "torch's oneDNN", one_dnn.enabled, True, partial(setattr, one_dnn, "enabled")
    same = torch.are_deterministic_algorithms_enabled()
    yield "torch's determinism", same, False, torch.use_deterministic_algorithms
    # First by the older of torch's two interfaces, which fails if it does not fit the newer one.
    put = torch.set_float32_matmul_precision
    yield "torch's precision of products", _precision(torch), "highest", put
    for name in ("mkldnn", "cuda"):
        products = getattr(torch.backends, name).matmul
        put = partial(setattr, products, "fp32_precision")
        yield f"torch.backends.{name}.matmul", products.fp32_precision, "none", put


def _folder() -> str | None:
    with suppress(OSError):  # it was removed
        return os.getcwd()
    return None


def _open_again(name: str, number: int, stream: Any, _: bool) -> None:
    """stream: what it was before; if that is what was closed, it is opened anew."""
    if getattr(stream, "closed", True):
        encoding = getattr(stream, "encoding", None)
        stream = os.fdopen(number, "w", 1, encoding, "replace", closefd=False)
    setattr(sys, name, stream)


def _precision(torch: Any) -> str | None:
    with suppress(RuntimeError):
        return str(torch.get_float32_matmul_precision())
    return None


def _handle(handlers: list[Any]) -> None:
    for number, handler in zip(ENDING, handlers, strict=True):
        if handler is not None:  # one that Python did not set, and cannot
            signal.signal(number, handler)


def _compute_on(torch: Any, device: Any) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)
