"""What a program may have set torch to before it calls distcore: none of it changes a bit of what
is computed.

Importing this does not import torch: who has not imported it has set nothing.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

PLAIN = ("none", "ieee")
"""Precisions of float32 products that are those of float32."""


@contextmanager
def plain_torch() -> Iterator[None]:
    """Let torch compute as it comes until the block ends: in float32, with oneDNN and every kernel
    of attention, with numbers below the smallest normal one, on the CPU where nobody names a
    device, with gradients and without autocast. What the caller has set is put back.

    The default type, the precision of products, oneDNN and attention are the process's: they are as
    they come as long as any thread is in such a block. Everything else is set for this thread. (The
    threads that torch itself began while tiny numbers were flushed to zero go on to do so.)"""
    torch: Any = sys.modules.get("torch")
    if torch is None or getattr(torch.__spec__, "_initializing", False):  # by another thread
        yield
        return
    with ExitStack() as stack:
        stack.enter_context(_of_process(torch))
        if flushes():
            stack.callback(torch.set_flush_denormal, True)
            torch.set_flush_denormal(False)
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if not torch.is_grad_enabled():
            stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


class Setting(NamedTuple):
    """first: what it is before anybody sets it."""

    name: str
    now: Callable[[], Any]
    first: Any
    put: Callable[[Any], object]


def attribute(name: str, what: Any, its: str, first: Any) -> Setting:
    """One that is an attribute of `what`, which is called so."""
    return Setting(f"{name}.{its}", partial(getattr, what, its), first, partial(setattr, what, its))


def flushes() -> bool:
    """Whether this thread takes numbers below the smallest normal one for 0: torch can set that,
    but not tell."""
    return not sys.float_info.min / 2


def shared(torch: Any) -> Iterator[Setting]:
    """What all threads share, but for precisions. Kernels of attention add in other orders."""
    default = torch.get_default_dtype
    yield Setting("torch's default type", default, torch.float32, torch.set_default_dtype)
    yield attribute("torch.backends.mkldnn", torch.backends.mkldnn, "enabled", True)
    cuda, mha = torch.backends.cuda, torch.backends.mha
    for kind in ("flash", "mem_efficient", "math", "cudnn"):
        now, put = getattr(cuda, f"{kind}_sdp_enabled"), getattr(cuda, f"enable_{kind}_sdp")
        yield Setting(f"torch.backends.cuda.{kind}_sdp_enabled", now, True, put)
    name = "fp16_bf16_reduction_math_sdp"
    now, put = getattr(cuda, f"{name}_allowed"), getattr(cuda, f"allow_{name}")
    yield Setting(f"torch.backends.cuda.{name}_allowed", now, False, put)
    put = mha.set_fastpath_enabled
    yield Setting("torch.backends.mha.fastpath_enabled", mha.get_fastpath_enabled, True, put)


_lock = threading.Lock()
_blocks: list[tuple[int]] = []  # of each that is open: its thread
_undo = ExitStack()


@contextmanager
def _of_process(torch: Any) -> Iterator[None]:
    """The first block sets what is the process's, the last one puts it back."""
    block = (threading.get_ident(),)
    with _lock:
        if not _blocks:
            _set(torch, _undo)
        _blocks.append(block)
    try:
        yield
    finally:
        _leave(lambda each: each is block)


def _leave(is_over: Callable[[tuple[int]], bool]) -> None:
    with _lock:
        _blocks[:] = [each for each in _blocks if not is_over(each)]
        if not _blocks:
            _undo.close()


def _in_a_fork() -> None:
    """Of the parent's threads a child has the one that forked, and blocks of no other end."""
    global _lock
    _lock = threading.Lock()
    _leave(lambda each: each[0] != threading.get_ident())


os.register_at_fork(after_in_child=_in_a_fork)


def _set(torch: Any, undo: ExitStack) -> None:
    for each in shared(torch):
        if (was := each.now()) != each.first:
            undo.callback(each.put, was)
            each.put(each.first)
    for products in (torch.backends.mkldnn.matmul, torch.backends.cuda.matmul):
        precision = products.fp32_precision
        if precision not in PLAIN:
            undo.callback(setattr, products, "fp32_precision", precision)
            products.fp32_precision = "ieee"
