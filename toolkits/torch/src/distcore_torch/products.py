"""Fully connected layers in float32 on a CPU, by the fastest of what is there.

torch's own `linear` multiplies by MKL, which takes vectors of 256 bits on a processor that is not
Intel's. oneDNN, which is in torch as well, makes its kernels for the instruction set alone. So
where there are vectors of 512 bits (AVX-512) that MKL does not take, layers go by oneDNN: twice as
fast on an AMD EPYC. On Intel's own MKL is the faster one.

The gradient of a weight takes rows `CHUNK` at a time and adds what chunks give in their order.
Compiled code does it without copies of its factors turned round, by torch's own threads. Where it
was not built oneDNN gives the same bits on one thread, for both make the same chain of fused
multiply-adds of so few rows; on several, and where torch's threads are not to be had, oneDNN makes
one product.
"""

from __future__ import annotations

import ctypes
import os
import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import handle_torch_function, has_torch_function

from distcore_torch.processor import maker

if TYPE_CHECKING:
    from types import ModuleType

compiled: ModuleType | None
try:  # by name: import-linter takes a compiled module for its package, which would be a circle
    compiled = import_module("distcore_torch._products")
except ImportError:
    compiled = None

ONEDNN: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
"""The operator of a layer, if torch was built with oneDNN; torch's own compiler uses it."""

CHUNK = 128
"""Rows of one chain, as in _products.c."""

FEWEST_WEIGHTS, NARROWEST = 1 << 14, 8
"""Smaller layers, or those with fewer inputs or outputs, gain less than a call from Python costs,
unless they have hundreds of rows."""

LEAST_WORK = 1 << 22
"""Of training: rows times weights for each thread; with less of it too a call from Python costs
more than it gains. Predictions do not ask: their bits depend on no number of threads."""

FEWEST_ROWS = 16
"""With fewer rows torch's own product needs no second thread, for which oneDNN would wait."""


class _Mode(threading.local):
    """Of each thread: one that predicts has nothing to do with another one's exact training."""

    by_weight_alone = False


_mode = _Mode()


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """As `torch.nn.functional.linear`: x [B, inputs], weight [outputs, inputs], bias [outputs] give
    [B, outputs], and as exact."""
    if torch.compiler.is_compiling():  # which has kernels of its own
        return F.linear(x, weight, bias)
    if has_torch_function((x, weight)):
        return handle_torch_function(linear, (x, weight), x, weight, bias)
    plain = x.dim() == 2 and x.dtype == torch.float32
    if not (plain and (_mode.by_weight_alone or _is_worth(len(x), weight)) and by_onednn(weight)):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled():
        return _Linear.apply(x, weight, bias)
    return forward(x, weight, bias)


def _is_worth(rows: int, weight: torch.Tensor) -> bool:
    least = LEAST_WORK * torch.get_num_threads() if torch.is_grad_enabled() else 0
    return rows >= FEWEST_ROWS and rows * weight.numel() >= least


@contextmanager
def by_weight_alone() -> Iterator[None]:
    """Within it a layer goes by oneDNN however few rows there are: those of a part of exact
    training, whose bits are the same beside the rows of other parts."""
    before = _mode.by_weight_alone
    try:
        _mode.by_weight_alone = True
        yield
    finally:
        _mode.by_weight_alone = before


def by_onednn(weight: torch.Tensor) -> bool:
    """Whether a layer of this weight goes by oneDNN, if it has rows enough: a matter of the weight
    and the machine."""
    return (
        weight.numel() >= FEWEST_WEIGHTS
        and min(weight.shape) >= NARROWEST
        and weight.dtype == torch.float32
        and weight.is_cpu
        and weight.is_contiguous()
        and _there()
        and not torch.is_autocast_enabled("cpu")
    )


def are_plain(weights: Sequence[torch.Tensor]) -> bool:
    """Whether layers of these weights, of one shape, are torch's own products now, whatever their
    rows, and nobody looks at functions: neither exact training nor a compiler."""
    first = weights[0]
    return (
        first.is_cpu
        and first.dtype == torch.float32
        and not torch.compiler.is_compiling()
        and not has_torch_function(weights)
        and not _mode.by_weight_alone
        and not torch.is_autocast_enabled("cpu")
        and not by_onednn(first)
    )


@cache
def _there() -> bool:
    return has_vectors() and maker() != "GenuineIntel"  # for whose processors MKL is the faster one


def has_vectors() -> bool:
    """Whether oneDNN is here and takes vectors of 512 bits."""
    built = ONEDNN is not None and torch.backends.mkldnn.is_available()
    return built and torch.backends.cpu.get_cpu_capability() == "AVX512"


def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x times the weight's transpose, plus the bias: [B, outputs].

    The weight lies in one piece, turned round or not: of rows that lie apart oneDNN makes a product
    by its reference code, a thousand times slower."""
    found: torch.Tensor = ONEDNN.default(x, weight, bias, "none", [], "")
    return found


def input_gradient(gradient: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Of the layer's input, from that of its output, [B, outputs]: [B, inputs]."""
    return forward(gradient, weight.t(), None)


def weight_gradient(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Of the weight, from that of the layer's output, [B, outputs], and its input, [B, inputs]:
    [outputs, inputs]."""
    rows, x = len(x), x.contiguous()  # rows of a batch lie apart
    if not rows:  # oneDNN has no product of nothing
        return gradient.t().mm(x)
    counted = torch._C._len_torch_dispatch_stack() > 0  # who counts operators sees no others
    several = torch.get_num_threads() > 1
    if counted or (several and not shares_threads()):
        return forward(gradient.t(), x.t(), None)
    if has_kernel():
        found = x.new_empty(gradient.shape[1], x.shape[1])
        lay_weight_gradients(found, gradient, x, [rows])
        return found
    found = forward(gradient[:CHUNK].t(), x[:CHUNK].t(), None)
    for start in range(CHUNK, rows, CHUNK):
        chunk = slice(start, start + CHUNK)
        found += forward(gradient[chunk].t(), x[chunk].t(), None)
    return found.add_(0.0)


def has_kernel() -> bool:
    """Whether compiled code can make gradients of weights."""
    return compiled is not None and bool(compiled.there())


@cache
def shares_threads() -> bool:
    """Whether compiled code may take torch's threads: those of the OpenMP library in its wheel."""
    path = openmp()
    if compiled is None or path is None or not has_kernel():
        return False
    return bool(compiled.share_threads(path))


@cache
def openmp() -> str | None:
    """The path of the OpenMP library in torch's wheel, GNU's; None if there is none."""
    found = next((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"), None)
    return str(found) if found else None


def _end_team() -> None:
    """End the threads of OpenMP that wait for work of this thread, which begins others when it has
    some. A forked child has none of them, and GNU's library would wait there for ever."""
    path = openmp()
    if path is not None:
        with suppress(OSError, AttributeError):  # it is not loaded, or older than OpenMP 5
            loaded = ctypes.CDLL(path, os.RTLD_NOLOAD | os.RTLD_LAZY)
            loaded.omp_pause_resource_all(ctypes.c_int(1))  # omp_pause_soft


os.register_at_fork(before=_end_team)


def lay_weight_gradients(
    out: torch.Tensor, gradient: torch.Tensor, x: torch.Tensor, ends: Sequence[int]
) -> None:
    """Lay the tree's sum of the parts' `weight_gradient`, zeros without a sign; the same bits for
    any number of threads.

    Args:
        out: [outputs, inputs], contiguous, not cleared.
        gradient, x: [B, outputs] and [B, inputs], part after part; at least one row.
        ends: Where each part ends among the rows, the last at B; as many as a power of two.
    """
    assert compiled is not None
    given = (gradient.detach().contiguous().numpy(), x.detach().contiguous().numpy())
    compiled.weight_gradient(out.numpy(), *given, array("q", ends), len(x), torch.get_num_threads())


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any) -> Any:
        ctx.save_for_backward(x, weight)
        return forward(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Any) -> Any:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            input_gradient(gradient, weight) if of_x else None,
            weight_gradient(gradient, x) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )
