"""Building blocks of the network: initializers, activations, norms and stacks of fully connected
layers.

Names, defaults and the order of operations are Ludwig's: a stack first normalises and drops out its
input (if `norm` or `dropout` is set), then each layer is linear, norm, activation, dropout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from distcore_core.errors import UserError
from distcore_data.figures import human_bytes
from distcore_data.memory import free_bytes
from distcore_tabular.options_network import NORM_ARGUMENTS
from distcore_torch.products import linear

ACTIVATIONS: dict[str | None, Callable[[], nn.Module]] = {
    "elu": nn.ELU,
    "leakyRelu": nn.LeakyReLU,
    "logSigmoid": nn.LogSigmoid,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "softmax": lambda: nn.Softmax(dim=-1),
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "swish": nn.SiLU,
    "mish": nn.Mish,
    "selu": nn.SELU,
    "prelu": nn.PReLU,
    "relu6": nn.ReLU6,
    "hardswish": nn.Hardswish,
    "hardsigmoid": nn.Hardsigmoid,
    "softplus": nn.Softplus,
    "celu": nn.CELU,
    None: nn.Identity,
}
"""Ludwig's activations by name; those that change the width (swiglu, …) are refused by the
options."""

INITIALIZERS: dict[str, Callable[..., torch.Tensor]] = {
    "uniform": nn.init.uniform_,
    "normal": nn.init.normal_,
    "constant": nn.init.constant_,
    "ones": nn.init.ones_,
    "zeros": nn.init.zeros_,
    "eye": nn.init.eye_,
    "identity": nn.init.eye_,
    "dirac": nn.init.dirac_,
    "xavier_uniform": nn.init.xavier_uniform_,
    "xavier_normal": nn.init.xavier_normal_,
    "kaiming_uniform": nn.init.kaiming_uniform_,
    "kaiming_normal": nn.init.kaiming_normal_,
    "orthogonal": nn.init.orthogonal_,
    "sparse": nn.init.sparse_,
}
"""Ludwig's initializers by name: those of torch.nn.init."""


def initialize(tensor: torch.Tensor, initializer: str | Mapping[str, Any]) -> None:
    """Fill the tensor in place. initializer: a name, or {"type": name, …arguments of the
    torch.nn.init function}.

    Raises UserError naming the initializer if it does not fit (`eye` on a bias, a negative
    `std`)."""
    arguments = {"type": initializer} if isinstance(initializer, str) else dict(initializer)
    name = arguments.pop("type")
    try:
        INITIALIZERS[name](tensor, **arguments)
    except torch.OutOfMemoryError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"Initializer {initializer!r} cannot fill a tensor of shape {tuple(tensor.shape)}: "
            f"{error}. Give its arguments as {{type: …, argument: value}}, or choose another."
        ) from error


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over [B, features] that also takes a batch of one row, or of none.

    While it trains, fewer than two rows have no variance; they are normalised by the running
    statistics instead, so that its weights always get a gradient (DDP waits for every gradient).
    Statistics are those of this worker's rows: nothing is sent to other workers.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if self.training and input.shape[0] < 2:
            return F.batch_norm(
                input,
                self.running_mean,
                self.running_var,
                self.weight,
                self.bias,
                False,
                0.0,
                self.eps,
            )
        return super().forward(input)


def in_place(activation: str | None) -> nn.Module:
    """The activation for an input that nobody needs again, as nobody needs a linear layer's output
    before its ReLU: in place it saves an allocation, a few percent of a step."""
    return nn.ReLU(inplace=True) if activation == "relu" else ACTIVATIONS[activation]()


def make_norm(norm: str, size: int, params: Mapping[str, Any] | None = None) -> nn.Module:
    """The norm `batch` or `layer` over [B, size]. params: arguments of torch's BatchNorm1d or
    LayerNorm."""
    kind: Callable[..., nn.Module] = {"batch": BatchNorm, "layer": nn.LayerNorm}[norm]
    return kind(size, **(params or {}))


class Linear(nn.Linear):
    """A linear layer by the fastest product that is there."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return linear(input, self.weight, self.bias)


class UnsetLinear(Linear):
    """One whose values whoever makes it gives. (`torch.nn.utils.skip_init` imports sympy: half a
    second.)"""

    def reset_parameters(self) -> None:
        """Leave them as they are."""


class FCLayer(nn.Module):
    """One fully connected layer, [B, input_size] → [B, output_size]: linear, norm, activation,
    dropout."""

    def __init__(
        self,
        input_size: int,
        output_size: int = 256,
        use_bias: bool = True,
        weights_initializer: str | Mapping[str, Any] = "xavier_uniform",
        bias_initializer: str | Mapping[str, Any] = "zeros",
        norm: str | None = None,
        norm_params: Mapping[str, Any] | None = None,
        activation: str | None = "relu",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.linear = UnsetLinear(input_size, output_size, bias=use_bias)
        initialize(self.linear.weight, weights_initializer)
        if use_bias:
            initialize(self.linear.bias, bias_initializer)
        after: list[nn.Module] = [] if norm is None else [make_norm(norm, output_size, norm_params)]
        if activation is not None:
            after.append(in_place(activation))
        if dropout > 0:
            after.append(nn.Dropout(dropout))
        self.after = nn.Sequential(*after)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.after(self.linear(hidden))


class FCStack(nn.Module):
    """Fully connected layers one behind the other, [B, input_size] → [B, output_size].

    layers: what differs from the defaults, a mapping for each layer (arguments of FCLayer); None:
    num_layers layers of the defaults. No layers at all leaves the input as it is, but for the norm
    and the dropout of the input.
    residual: add a layer's input to its output wherever both are of one size.
    """

    def __init__(
        self,
        input_size: int,
        layers: Sequence[Mapping[str, Any]] | None = None,
        num_layers: int = 1,
        *,
        residual: bool = False,
        norm: str | None = None,
        norm_params: Mapping[str, Any] | None = None,
        dropout: float = 0.0,
        **defaults: Any,
    ) -> None:
        super().__init__()
        self.residual = residual
        before: list[nn.Module] = [] if norm is None else [make_norm(norm, input_size, norm_params)]
        if dropout > 0:
            before.append(nn.Dropout(dropout))
        self.before = nn.Sequential(*before)
        common = {"norm": norm, "dropout": dropout, **defaults}
        self.layers = nn.ModuleList()
        for layer in [{}] * num_layers if layers is None else layers:
            takes = NORM_ARGUMENTS.get(layer.get("norm", norm), {})
            inherited = {name: each for name, each in (norm_params or {}).items() if name in takes}
            made = FCLayer(input_size, **{**common, "norm_params": inherited, **layer})
            self.layers.append(made)
            input_size = made.output_size
        self.output_size: int = input_size

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if len(self.before):
            hidden = self.before(hidden)
        for layer in self.layers:
            out = layer(hidden)
            hidden = hidden + out if self.residual and out.shape[1] == hidden.shape[1] else out
        return hidden


HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""Where torch keeps what runs beside a module and may change what it gives."""

SMALL = 1 << 20
"""Bytes of weights for which nobody looks at how much memory is free: the look costs more than a
small layer, of which a network of thousands of inputs has one for each."""


def require_memory(needed: int, what: str, instead: str) -> None:
    """Refuse weights that cannot be held at all, before torch is asked.

    Args:
        needed: Bytes of the weights.
        what: They and the options that make them so large, for the error: "the weights of …".
        instead: What to lower.

    Raises:
        UserError: So much memory is not free.
    """
    if needed < SMALL:
        return
    free = free_bytes()
    if free and needed > free:
        raise UserError(
            f"{what} take {human_bytes(needed)}, and {human_bytes(free)} of memory are free. "
            f"Training takes four times as much. {instead}"
        )


def _require_layers(weights: int, layers: int, output_size: int, which: str) -> None:
    """Raise UserError if so many layers cannot be held at all. weights: of all of them. output_size
    and which: the width that is to blame, and the layers with it, for the error."""
    count = "one layer of that width" if layers == 1 else f"{layers} layers {which}"
    require_memory(
        weights * torch.get_default_dtype().itemsize + layers * LAYER_BYTES,
        f"output_size: {output_size} is too large for this machine: the weights of {count}",
        "Lower output_size or the number of layers.",
    )


LAYER_BYTES = 10_000
"""What torch's objects for a layer take beside its weights."""

STACK_OPTIONS = (
    "output_size",
    "use_bias",
    "weights_initializer",
    "bias_initializer",
    "norm",
    "norm_params",
    "activation",
    "dropout",
)


def fc_stack(input_size: int, options: Any, num_layers: int, residual: bool = False) -> FCStack:
    """The stack that an options object declares: its `fc_layers`, or num_layers layers of its
    defaults.

    options: any object with the attributes STACK_OPTIONS and `fc_layers` (mappings, or models
        with what was set).

    Raises UserError if it is larger than the memory."""
    layers = options.fc_layers
    if layers is not None:
        layers = [
            layer.model_dump(exclude_unset=True) if hasattr(layer, "model_dump") else layer
            for layer in layers
        ]
    defaults = {name: getattr(options, name) for name in STACK_OPTIONS}
    if layers is None:
        width = options.output_size
        weights = width * (input_size + (num_layers - 1) * width) if num_layers else 0
        which = f"(num_fc_layers, the first over {input_size} inputs) of that width"
        _require_layers(weights, num_layers, width, which)
    elif layers:
        widths = [input_size, *(each.get("output_size", options.output_size) for each in layers)]
        weights = sum(before * width for before, width in pairwise(widths))
        which = "(fc_layers), the widest of that width,"
        _require_layers(weights, len(layers), max(widths[1:]), which)
    return FCStack(input_size, layers, num_layers, residual=residual, **defaults)
