"""What a program may have set torch to before it calls distcore: none of it changes a bit of what
is computed.

Importing this does not import torch: who has not imported it has set nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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


class Switch(NamedTuple):
    """first: whether it is on as torch comes."""

    name: str
    now: Callable[[], bool]
    first: bool
    put: Callable[[bool], object]


def flushes() -> bool:
    """Whether this thread takes numbers below the smallest normal one for 0: torch can set that,
    but not tell."""
    return not sys.float_info.min / 2


def attention(torch: Any) -> Iterator[Switch]:
    """What decides which kernels attention takes: they add in other orders."""
    cuda, mha = torch.backends.cuda, torch.backends.mha
    for kind in ("flash", "mem_efficient", "math", "cudnn"):
        now, put = getattr(cuda, f"{kind}_sdp_enabled"), getattr(cuda, f"enable_{kind}_sdp")
        yield Switch(f"torch.backends.cuda.{kind}_sdp_enabled", now, True, put)
    name = "fp16_bf16_reduction_math_sdp"
    now, put = getattr(cuda, f"{name}_allowed"), getattr(cuda, f"allow_{name}")
    yield Switch(f"torch.backends.cuda.{name}_allowed", now, False, put)
    put = mha.set_fastpath_enabled
    yield Switch("torch.backends.mha.fastpath_enabled", mha.get_fastpath_enabled, True, put)


_lock = threading.Lock()
_blocks = 0
_undo = ExitStack()


@contextmanager
def _of_process(torch: Any) -> Iterator[None]:
    """The first block sets what is the process's, the last one puts it back."""
    global _blocks
    with _lock:
        if not _blocks:
            _set(torch, _undo)
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks:
                _undo.close()


def _set(torch: Any, undo: ExitStack) -> None:
    before = torch.get_default_dtype()
    if before != torch.float32:
        undo.callback(torch.set_default_dtype, before)
        torch.set_default_dtype(torch.float32)
    if not torch.backends.mkldnn.enabled:
        undo.callback(setattr, torch.backends.mkldnn, "enabled", False)
        torch.backends.mkldnn.enabled = True
    for each in attention(torch):
        if each.now() != each.first:
            undo.callback(each.put, not each.first)
            each.put(each.first)
    for products in (torch.backends.mkldnn.matmul, torch.backends.cuda.matmul):
        precision = products.fp32_precision
        if precision not in PLAIN:
            undo.callback(setattr, products, "fp32_precision", precision)
            products.fp32_precision = "ieee"
