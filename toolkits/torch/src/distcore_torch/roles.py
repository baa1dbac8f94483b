"""The roles that this toolkit declares: optimizers, schedules of the learning rate, and callbacks
of the training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from distcore_core.contracts import MEMBER_HOOK, Role

if TYPE_CHECKING:
    import torch


class OptimizerMembers(Protocol):
    """What the loop needs of a `torch.optim.Optimizer`."""

    param_groups: Any
    state: Any
    step: Any
    state_dict: Any
    load_state_dict: Any


class CallbackMembers(Protocol):
    """What a `distcore_torch.Callback` has."""

    around_gradients: Any
    after_step: Any
    around_evaluation: Any
    state: Any
    load_state: Any


OPTIMIZER = Role(
    "optimizers", MEMBER_HOOK, "optimizer", cast("type[torch.optim.Optimizer]", OptimizerMembers)
)
"""Context: parameters, learning_rate. A `torch.optim.Optimizer`, whose state goes into
checkpoints."""

SCHEDULE: Role[Any] = Role("schedules", MEMBER_HOOK, "learning rate schedule", object)
"""Context: learning_rate, steps, steps_per_round. step → learning rate, of the step alone: resuming
asks it anew.

step: 0, 1, … since the warm-up. learning_rate: of step 0. steps: of the whole run after the
warm-up, a fraction where the warm-up is one of a step. steps_per_round: between two evaluations."""

CALLBACK: Role[Any] = Role("callbacks", MEMBER_HOOK, "callback", CallbackMembers)
"""Context: module. A `training.callbacks.Callback`, made in every rank: averages of the
weights, other gradients."""
