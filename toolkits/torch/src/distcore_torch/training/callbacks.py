"""Callbacks of the training loop (`trainer.callbacks`): they change how a model is trained, in
every rank alike; an extension only listens.

The loop asks once, before its first step, which methods a callback has of its own. A run without
callbacks looks at an empty tuple and at None each step, and calls nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from distcore_core.registry.manager import environment_plugins
from distcore_data.members import make_named
from distcore_torch.roles import CALLBACK

if TYPE_CHECKING:
    import torch

Compute = Callable[[], None]
Tensors = Mapping[str, "torch.Tensor"]


class Callback:
    """Base of the members of the role `callbacks`, each of whose methods does nothing.

    Made in every rank with `module` in its context: on the rank's device, with the weights that
    training starts from. Whatever it does must follow from these, from gradients and from the
    number of the step alone: then every rank does the same, and an exact run stays exact. What it
    raises ends the run.
    """

    def around_gradients(self, compute: Compute) -> None:
        """Leave in the parameters' `grad` what the optimizer steps by; clipping and penalties
        come after.

        compute: lays the gradients of the global batch there, the same bits in every rank, at the
            weights as they are now. It may be called more than once: rows and random numbers are
            the same each time, and the first time counts for the losses that are told."""
        compute()

    def after_step(self, step: int) -> None:
        """The weights were updated for the step-th time: 1, 2, …"""

    def around_evaluation(self) -> AbstractContextManager[None]:
        """Around each evaluation of the module, and around each taking of the weights that a model
        is made of. When it ends, the module must be as it was before, to the bit."""
        return nullcontext()

    def state(self) -> Tensors:
        """What a checkpoint keeps beside weights and optimizer: {name: tensor}. Copied before the
        next step."""
        return {}

    def load_state(self, state: Tensors) -> None:
        """Go on from what `state` gave; the module has the weights of that moment."""


class Callbacks:
    """The callbacks of one rank, in their order.

    Attributes:
        after_step: Of those that have one of their own.
        gradients: Calls what it is given at least once; None: no callback is around it.
        evaluates: Whether the weights that are evaluated may be others than those that are trained.
    """

    def __init__(self, made: Iterable[Callback] = ()) -> None:
        self._all = tuple(made)
        self.after_step = tuple(each.after_step for each in self._all if _has(each, "after_step"))
        around = [each for each in self._all if _has(each, "around_gradients")]
        self.gradients = partial(_around, around) if around else None
        self._evaluations = [
            each.around_evaluation for each in self._all if _has(each, "around_evaluation")
        ]
        self.evaluates = bool(self._evaluations)

    @classmethod
    def of(cls, sections: Iterable[Any], module: torch.nn.Module) -> Callbacks:
        """Those that `trainer.callbacks` names.

        Args:
            sections: Validated.
            module: Of this rank, with the weights that training starts from.

        Raises:
            PluginError: One cannot be made.
        """
        plugins = environment_plugins()
        return cls(
            make_named(plugins, CALLBACK, each.type, each, module=module) for each in sections
        )

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """The module is as it is evaluated until the block ends."""
        with ExitStack() as stack:
            for enter in self._evaluations:
                stack.enter_context(enter())
            yield

    def state(self) -> dict[str, torch.Tensor]:
        """Of all: {"<number>/<name>": tensor}."""
        return {
            f"{number}/{name}": tensor
            for number, each in enumerate(self._all)
            for name, tensor in each.state().items()
        }

    def load_state(self, state: Tensors) -> None:
        """What `state` gave."""
        own: list[dict[str, torch.Tensor]] = [{} for _ in self._all]
        for path, tensor in state.items():
            number, _, name = path.partition("/")
            own[int(number)][name] = tensor
        for each, part in zip(self._all, own, strict=True):
            each.load_state(part)


def _around(made: Sequence[Callback], compute: Compute) -> None:
    """The first callback is the outermost."""
    for around in [each.around_gradients for each in reversed(made)]:
        compute = partial(around, compute)
    compute()


def _has(callback: Callback, name: str) -> bool:
    """Whether the callback's method is its own."""
    return getattr(type(callback), name) is not getattr(Callback, name)
