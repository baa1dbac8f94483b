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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from distcore_torch.modes import Setting, attribute, flushes, shared
from distcore_torch.signals import ENDING

log = logging.getLogger("distcore")

KINDS = ("cpu", "cuda")
"""Of devices."""


@contextmanager
def put_back(who: str) -> Iterator[None]:
    """Put back what the block leaves changed, with a warning that begins with `who`. (For the time
    of a whole run `modes.plain_torch` sets what changes bits.)

    Random numbers are left as they are: each step seeds its own, and other threads draw, too."""
    before = {each.name: (each.now(), each.put) for each in _settings()}
    try:
        yield
    finally:
        undone: list[str] = []
        left: list[str] = []
        for each in _settings():
            was, put = before.get(each.name, (each.first, each.put))
            if was is None or each.now() == was:
                continue
            with suppress(OSError, ValueError, RuntimeError):  # the folder is gone, say
                put(was)
            (undone if each.now() == was else left).append(each.name)
        if undone:
            log.warning("%s changed %s; that was undone", who, ", ".join(undone))
        if left:
            log.warning("%s changed %s, which could not be undone", who, ", ".join(left))


def _settings() -> Iterator[Setting]:
    """Of torch once it is imported."""
    yield Setting("the working directory", _folder, None, os.chdir)
    for name, number in (("stdout", 1), ("stderr", 2)):
        put = partial(_open_again, name, number, getattr(sys, name))
        yield Setting(f"sys.{name} (it was closed)", partial(_is_closed, name), False, put)
    yield Setting("the recursion limit", sys.getrecursionlimit, None, sys.setrecursionlimit)
    if threading.current_thread() is threading.main_thread():
        yield Setting("the handlers of signals", _handlers, None, _handle)
    torch: Any = sys.modules.get("torch")
    if torch is not None and not getattr(torch.__spec__, "_initializing", False):
        yield from _of_torch(torch)  # else another thread is importing it


def _of_torch(torch: Any) -> Iterator[Setting]:
    same, is_same = torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled
    threads = torch.get_num_threads
    yield Setting("torch's gradients", torch.is_grad_enabled, True, torch.set_grad_enabled)
    yield from shared(torch)
    yield Setting(
        "torch's default device",
        torch.get_default_device,
        torch.device("cpu"),
        partial(_compute_on, torch),
    )
    yield Setting("torch's threads", threads, threads(), torch.set_num_threads)
    off = [(False, torch.bfloat16), (False, torch.float16), 0]
    yield Setting("torch's autocast", partial(_casts, torch), off, partial(_cast, torch))
    yield Setting(
        "torch's determinism",
        lambda: (is_same(), only_warns()),
        (False, False),
        lambda was: same(was[0], warn_only=was[1]),
    )
    backends = torch.backends
    yield attribute("torch.backends.cudnn", backends.cudnn, "benchmark", False)
    yield Setting("torch's tiny numbers", flushes, False, torch.set_flush_denormal)
    # First by the older of torch's two interfaces, which fails if it does not fit the newer one.
    put = torch.set_float32_matmul_precision
    yield Setting("torch's precision of products", partial(_precision, torch), "highest", put)
    mkldnn, cudnn = backends.mkldnn, backends.cudnn
    for name, what in (
        ("", backends),
        (".mkldnn", mkldnn),
        (".mkldnn.matmul", mkldnn.matmul),
        (".mkldnn.conv", mkldnn.conv),
        (".mkldnn.rnn", mkldnn.rnn),
        (".cudnn", cudnn),
        (".cuda.matmul", backends.cuda.matmul),
    ):
        yield attribute(f"torch.backends{name}", what, "fp32_precision", "none")
    for name, what in ((".conv", cudnn.conv), (".rnn", cudnn.rnn)):
        yield attribute(f"torch.backends.cudnn{name}", what, "fp32_precision", "tf32")


def _folder() -> str | None:
    with suppress(OSError):  # it was removed
        return os.getcwd()
    return None


def _is_closed(name: str) -> bool:
    return bool(getattr(getattr(sys, name), "closed", False))


def _handlers() -> list[Any]:
    return [signal.getsignal(each) for each in ENDING]


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


def _casts(torch: Any) -> list[Any]:
    """(enabled, type) on the CPU and on GPUs, and in how many of its blocks this thread is."""
    blocks = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    kinds = [(torch.is_autocast_enabled(each), torch.get_autocast_dtype(each)) for each in KINDS]
    return [*kinds, blocks]


def _cast(torch: Any, was: list[Any]) -> None:
    for kind, (enabled, dtype) in zip(KINDS, was, strict=False):
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)
    blocks = _casts(torch)[-1]
    for _ in range(blocks, was[-1]):
        torch.autocast_increment_nesting()
    for _ in range(was[-1], blocks):
        torch.autocast_decrement_nesting()
    if not was[-1]:  # else weights of former steps, which it keeps until the last block ends
        torch.clear_autocast_cache()


def _compute_on(torch: Any, device: Any) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)
