"""Optimizers by Ludwig's names, fused where torch has it; clipping, regularisation; their state
as tensors and JSON."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from distcore_core.contracts import JSON
from distcore_core.errors import CheckpointError
from distcore_core.registry.manager import environment_plugins
from distcore_data.members import make_named
from distcore_torch.roles import OPTIMIZER

CLASSES: dict[str, Any] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "lbfgs": torch.optim.LBFGS,
}
"""What `trainer.optimizer.type` may name."""

FUSED = ("sgd", "adam", "adamw", "adagrad")
"""Those that torch has a fused kernel for, on CPU and CUDA (Adagrad: CPU alone); one pass over
the weights a step."""

Parameters = Sequence[torch.nn.Parameter]


def make_optimizer(
    options: Any, parameters: Parameters, learning_rate: float
) -> torch.optim.Optimizer:
    """The optimizer of the `trainer.optimizer` section for these parameters.

    options: `type` and the options of the member of the role `optimizers`."""
    plugins = environment_plugins()
    return make_named(
        plugins,
        OPTIMIZER,
        options.type,
        options,
        parameters=parameters,
        learning_rate=learning_rate,
    )


def builtin_optimizer(
    name: str, options: Any, parameters: Parameters, learning_rate: float
) -> torch.optim.Optimizer | None:
    """The toolkit's own optimizer of a name, or None.

    options: the arguments of torch's class, by the same names, and `type`."""
    if name not in CLASSES:
        return None
    arguments = options.model_dump(exclude={"type"})
    if name in FUSED and _can_fuse(name, parameters):
        arguments["fused"] = True
        device = next(iter(parameters)).device
        if device.type == "cuda":
            # There its kernel reads it, so that steps can be replayed.
            learning_rate = torch.tensor(learning_rate, device=device)  # type: ignore[assignment]
    _without_compiler(torch.optim.Optimizer)
    optimizer: torch.optim.Optimizer = CLASSES[name](parameters, lr=learning_rate, **arguments)
    if name != "lbfgs":  # its step computes gradients, and decorators say where
        optimizer.step = _PlainStep(optimizer)  # type: ignore[method-assign]
    return optimizer


def _without_compiler(kind: type[torch.optim.Optimizer]) -> None:
    """Let the optimizer's housekeeping run as it is. torch would import its compiler (0.9 s)
    only to keep it away."""
    for name in ("add_param_group", "load_state_dict", "state_dict", "zero_grad"):
        function = getattr(getattr(kind, name), "__wrapped__", None)
        if function is not None:
            setattr(function, "__dynamo_disable", function)


class _PlainStep:
    """An optimizer's step without its decorators: they import torch's compiler, and call hooks
    that nobody sets.

    It does not keep its optimizer, which keeps it: the two would live, with a copy or two of the
    weights, until Python looks for garbage."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._step = inspect.unwrap(type(optimizer).step)

    def __call__(self, closure: Callable[[], Any] | None = None) -> Any:
        with torch.no_grad():
            return self._step(self._optimizer(), closure)


def _can_fuse(name: str, parameters: Parameters) -> bool:
    devices = {parameter.device.type for parameter in parameters}
    kinds = {"cpu"} if name == "adagrad" else {"cpu", "cuda"}
    return devices <= kinds and all(parameter.is_floating_point() for parameter in parameters)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this learning rate from the next step on."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def on_device(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its kernels are fused, and read the learning rate where they run: nothing of a step
    is the processor's to know."""
    return type(optimizer) in CLASSES.values() and all(
        group.get("fused") and isinstance(group["lr"], torch.Tensor)
        for group in optimizer.param_groups
    )


# ------------------------------------------------------------------ gradients


class Clipper:
    """Bounds gradients in place (`trainer.gradient_clipping`), in Ludwig's order: global norm,
    norm, value.

    As in Ludwig's code, `clipnorm` is a second bound of the norm of all gradients together. None
    clips nothing.
    """

    def __init__(self, options: Any | None) -> None:
        self.norms = (
            [bound for bound in (options.clipglobalnorm, options.clipnorm) if bound]
            if options
            else []
        )
        self.value = options.clipvalue if options else None
        self.active = bool(self.norms or self.value)

    def __call__(self, parameters: Parameters) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for bound in self.norms:
            clip_norm(gradients, bound)
        if self.value:
            torch.nn.utils.clip_grad_value_(parameters, self.value)


def clip_norm(gradients: Sequence[torch.Tensor], bound: float) -> None:
    """Scale the gradients in place so that the 2-norm of all together is at most `bound`.

    As torch.nn.utils.clip_grad_norm_, but on a CPU, where looking at the norm waits for nothing,
    gradients that are within the bound are left alone instead of multiplied by 1."""
    if not gradients:
        return
    norm = _total_norm(gradients)
    if norm.device.type == "cpu":
        value = float(norm)
        # A norm that is not finite clips to gradients that are not finite, which the loop notices.
        if value <= bound:
            return
        torch._foreach_mul_(list(gradients), bound / (value + 1e-6))
    else:
        torch._foreach_mul_(list(gradients), torch.clamp(bound / (norm + 1e-6), max=1.0))


def _total_norm(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """`torch.nn.utils.get_total_norm`, to the bit.

    It sorts gradients by device and dtype first, which takes as long as the norms of a small
    network do."""
    if len({(each.device, each.dtype) for each in gradients}) > 1:
        return torch.nn.utils.get_total_norm(gradients)
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(gradients), 2.0)), 2.0)


class Regularizer:
    """Adds the gradient of a penalty on all weights: l1: λ Σ|w|; l2: λ Σw²; l1_l2: both (Ludwig's
    `reg_loss`).

    The penalty's value is in no reported loss. Where `kind` is None or the strength 0 it does
    nothing."""

    def __init__(self, kind: str | None, strength: float) -> None:
        self.l1 = strength if kind in ("l1", "l1_l2") else 0.0
        self.l2 = strength if kind in ("l2", "l1_l2") else 0.0
        self.active = bool(self.l1 or self.l2)

    @torch.no_grad()
    def __call__(self, parameters: Parameters) -> None:
        weights: list[torch.Tensor] = [
            parameter for parameter in parameters if parameter.grad is not None
        ]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if self.l2:
            torch._foreach_add_(gradients, weights, alpha=2 * self.l2)
        if self.l1:
            torch._foreach_add_(gradients, torch._foreach_sign(weights), alpha=self.l1)

    @torch.no_grad()
    def penalty(self, parameters: Parameters) -> torch.Tensor | float:
        """The penalty's value, which a line search needs."""
        total: torch.Tensor | float = 0.0
        for parameter in parameters:
            if self.l1:
                total = total + self.l1 * parameter.abs().sum()
            if self.l2:
                total = total + self.l2 * parameter.square().sum()
        return total


# ------------------------------------------------------------------ state


def optimizer_state(
    optimizer: torch.optim.Optimizer, copy: bool = True
) -> tuple[JSON, dict[str, torch.Tensor]]:
    """The state as JSON and the tensors that it refers to by name: no pickle is needed to keep it.

    Any mixture of numbers, None, lists, mappings and tensors is kept, to the bit (L-BFGS has lists
    of tensors).
    copy: False for the optimizer's own tensors, which the next step changes."""
    tensors: dict[str, torch.Tensor] = {}
    state = optimizer.state_dict()["state"]
    return {
        "state": {
            str(index): _flatten(each, str(index), tensors, copy) for index, each in state.items()
        }
    }, tensors


def state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of its state, by names that tell the parameter's number and what it is;
    nothing is copied."""
    groups = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, parameter in enumerate(groups):
        yield from _tensors_in(optimizer.state.get(parameter, {}), f"optimizer/{index}")


def _tensors_in(value: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _tensors_in(each, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from _tensors_in(each, f"{path}.{index}")


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, saved: JSON, tensors: Mapping[str, torch.Tensor]
) -> None:
    """Give the optimizer what `optimizer_state` took; options and learning rate stay those it was
    made with.

    Raises CheckpointError if the state is of other parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = {int(index): _unflatten(each, tensors) for index, each in saved["state"].items()}
    for index, each in state.items():
        if index >= len(parameters):
            raise _foreign(f"parameter {index} of {len(parameters)}")
        for key, value in each.items():
            shape = parameters[index].shape
            if isinstance(value, torch.Tensor) and key in PER_WEIGHT and value.shape != shape:
                raise _foreign(
                    f"{key} of parameter {index} has shape {tuple(value.shape)} instead of "
                    f"{tuple(shape)}"
                )
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


PER_WEIGHT = frozenset(
    {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "grad_avg", "sum"}
)
"""Entries of an optimizer's state that have the shape of their parameter."""


def _foreign(what: str) -> CheckpointError:
    return CheckpointError(
        f"The checkpoint's optimizer state does not fit this model: {what}. "
        "Resume with the config that the run was started with, or start a new run."
    )


def _flatten(value: Any, path: str, tensors: dict[str, torch.Tensor], copy: bool) -> Any:
    if isinstance(value, torch.Tensor):
        # Views of one storage, as L-BFGS keeps them, cannot be saved side by side.
        own = value.detach()
        tensors[path] = own.clone(memory_format=torch.contiguous_format) if copy else own
        return {"tensor": path}
    if isinstance(value, Mapping):
        return {
            "map": {
                str(key): _flatten(each, f"{path}.{key}", tensors, copy)
                for key, each in value.items()
            }
        }
    if isinstance(value, list | tuple):
        return {
            "list": [
                _flatten(each, f"{path}.{index}", tensors, copy) for index, each in enumerate(value)
            ]
        }
    return value


def _unflatten(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]].clone()
    if "list" in value:
        return [_unflatten(each, tensors) for each in value["list"]]
    return {key: _unflatten(each, tensors) for key, each in value["map"].items()}
