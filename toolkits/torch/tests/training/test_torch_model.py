"""A network that cannot be trained or saved is told when it is built, and not at a checkpoint."""

import pytest
import torch
from torch import nn

from distcore_core.errors import UserError
from distcore_torch.training.torch_model import build_module


class Counting(nn.Linear):
    """Has a state that is no tensor."""

    def __init__(self):
        super().__init__(2, 1)

    def get_extra_state(self):
        return {"seen": 0}


def holding(buffer):
    """A network with this buffer."""
    made = nn.Linear(2, 1)
    made.register_buffer("unit", buffer)
    return made


class Made:
    """Plugins with one model, which makes the network."""

    def __init__(self, make):
        self.build = lambda features: make()

    def make(self, role, name, options):
        return self


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Counting, r"keeps _extra_state \(a dict\) in its state"),
        (lambda: nn.LazyLinear(1), "no shape for weight before its first batch"),
        (lambda: nn.Linear(2, 1, dtype=torch.complex64), "has weight as torch.complex64"),
        (lambda: nn.Linear(2, 1).requires_grad_(False), "Linear has nothing to train"),
        (nn.Identity, "Identity has nothing to train"),
        (lambda: holding(torch.ones(1).expand(4)), r"unit as a view that shows .*\.clone\(\)"),
        (lambda: holding(torch.eye(2).to_sparse()), "unit as a torch.sparse_coo tensor"),
    ],
)
def test_a_network_that_cannot_be_trained_or_saved_is_told(make, told):
    with pytest.raises(UserError, match=told):
        build_module({"type": "module", "options": {}}, None, Made(make), seed=0)
    sound = nn.Linear(2, 1, dtype=torch.float64)
    assert build_module({"type": "module", "options": {}}, None, Made(lambda: sound), 0) is sound


@pytest.mark.parametrize(
    "buffer",
    [
        torch.arange(4).expand(1, -1),
        torch.arange(9.0)[::4][:1],
        torch.arange(5.0).unfold(0, 3, 1),
        torch.eye(3).T,
        torch.ones(()),
        torch.ones(0, 3),
        torch.ones(0, 1).expand(0, 5),
        None,
    ],
)
def test_a_view_that_can_be_loaded_is_none_of_these(buffer):
    made = build_module({"type": "module", "options": {}}, None, Made(lambda: holding(buffer)), 0)
    made.load_state_dict({name: each.clone() for name, each in made.state_dict().items()})
