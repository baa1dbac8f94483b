"""The roles that this toolkit declares: optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from distcore_core.contracts import MEMBER_HOOK, Role

if TYPE_CHECKING:
    import torch

OPTIMIZER = Role("optimizers", MEMBER_HOOK, "optimizer", cast("type[torch.optim.Optimizer]", object))
"""Context: parameters, learning_rate. A `torch.optim.Optimizer`, whose state goes into checkpoints."""
