"""Models with a fault each: one linear layer."""

from __future__ import annotations

import random

from tests.mutants.harness import Mutants

from distcore_core.contracts import ModelBase
from distcore_core.hooks import hookimpl
from distcore_testing import ModelSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("models", ModelSuite)


@MUTANTS.sound
class Sound(ModelBase):
    def build(self, features):
        return _net(features)


@MUTANTS.fault("test_the_seed_decides_the_weights")
class Unseeded(ModelBase):
    """Weights from a generator of its own."""

    def build(self, features):
        import torch

        net = _net(features)
        for weight in net.parameters():
            weight.data = torch.randn(
                weight.shape, generator=torch.Generator().manual_seed(random.randrange(1 << 30))
            )
        return net


@MUTANTS.fault("test_logits_for_every_output_and_gradients_for_every_weight", quick=True)
class Unused(ModelBase):
    """A weight that no output depends on."""

    def build(self, features):
        import torch

        net = _net(features)
        net.unused = torch.nn.Parameter(torch.zeros(3))
        return net


@MUTANTS.fault("test_a_row_is_predicted_alike_whatever_else_is_in_its_batch", quick=True)
class Crowded(ModelBase):
    """Normalises by whatever rows are in the batch."""

    def build(self, features):
        return _net(features, crowded=True)


@MUTANTS.fault("test_logits_for_every_output_and_gradients_for_every_weight")
class Narrow(ModelBase):
    """One logit where there are classes."""

    def build(self, features):
        return _net(features, classes=1)


def _net(features, crowded=False, classes=None):
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.classes = classes or features.metadata["k"]["vocab_size"]
            self.layer = torch.nn.Linear(2, 2 + self.classes)

        def forward(self, batch):
            values = batch.block(["x0", "x1"])
            if crowded:
                values = values - values.mean(0)
            out = self.layer(values)
            return {"y": out[:, 0], "z": out[:, 1], "k": out[:, 2:]}

    return Net()


@hookimpl
def distcore_make_model(name):
    made = MUTANTS.named(name)
    return made and made()
