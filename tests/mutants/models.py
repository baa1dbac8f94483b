"""Models with a fault each: one linear layer."""

from __future__ import annotations

import random
from functools import partial

from tests.mutants.harness import Mutants

from distcore_core.contracts import ModelBase
from distcore_core.hooks import hookimpl
from distcore_testing import ModelSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("models", ModelSuite)


def net_of(features, read=None, classes=None, columns=("x0", "x1")):
    """A linear layer. read(net, batch): its input, [B, columns]; classes: logits of `k`."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.classes = classes or features.metadata["k"]["vocab_size"]
            self.layer = torch.nn.Linear(len(columns), 2 + self.classes)

        def forward(self, batch):
            out = self.layer(read(self, batch) if read else batch.block(list(columns)))
            return {"y": out[:, 0], "z": out[:, 1], "k": out[:, 2:]}

    return Net()


@MUTANTS.sound
class Sound(ModelBase):
    def build(self, features):
        return net_of(features)


@MUTANTS.fault("test_the_seed_decides_the_weights")
class Unseeded(ModelBase):
    """Weights from a generator of its own."""

    def build(self, features):
        import torch

        net = net_of(features)
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

        net = net_of(features)
        net.unused = torch.nn.Parameter(torch.zeros(3))
        return net


@MUTANTS.fault("test_a_row_is_predicted_alike_whatever_else_is_in_its_batch", quick=True)
class Crowded(ModelBase):
    """Normalises by whatever rows are in the batch."""

    def build(self, features):
        def read(net, batch):
            values = batch.block(["x0", "x1"])
            return values - values.mean(0)

        return net_of(features, read)


@MUTANTS.fault("test_logits_for_every_output_and_gradients_for_every_weight")
class Narrow(ModelBase):
    """One logit where there are classes."""

    def build(self, features):
        return net_of(features, classes=1)


@MUTANTS.fault("test_a_row_is_predicted_alike_whatever_else_is_in_its_batch")
class Squeezing(ModelBase):
    """A batch of one row loses its first dimension."""

    def build(self, features):
        net = net_of(features)
        plain = net.forward
        net.forward = lambda batch: {name: each.squeeze() for name, each in plain(batch).items()}
        return net


@MUTANTS.fault("test_a_row_is_predicted_alike_whatever_else_is_in_its_batch")
class Scaling(ModelBase):
    """Divides by the largest value of the batch, and so fails at one of no row."""

    def build(self, features):
        def read(net, batch):
            values = batch.block(["x0", "x1"])
            return values * (values.abs().max() > -1)

        return net_of(features, read)


@MUTANTS.fault("test_targets_are_neither_needed_nor_looked_at")
class Peeking(ModelBase):
    """Reads a target, which is not there when it predicts."""

    def build(self, features):
        def read(net, batch):
            return batch.block(["x0", "x1"]) + 0 * batch["y"].float()[:, None]

        return net_of(features, read)


@MUTANTS.fault("test_targets_are_neither_needed_nor_looked_at")
class Leaking(ModelBase):
    """Adds a target to its inputs while there is one."""

    def build(self, features):
        def read(net, batch):
            values = batch.block(["x0", "x1"])
            return values + batch["z"][:, None] if "z" in batch else values

        return net_of(features, read)


@MUTANTS.fault("test_its_state_can_be_saved_and_loaded")
class Forgetful(ModelBase):
    """Keeps the running mean of its inputs where no state is saved."""

    def build(self, features):
        def read(net, batch):
            values = batch.block(["x0", "x1"])
            if net.training:
                net.mean = 0.9 * net.mean + 0.1 * values.detach().mean(0)
            return values - net.mean

        net = net_of(features, read)
        net.mean = 0.0
        return net


@MUTANTS.fault("test_evaluating_changes_nothing_and_gives_the_same_again")
class Drifting(ModelBase):
    """Goes on with its running mean while it is evaluated."""

    def build(self, features):
        import torch

        def read(net, batch):
            values = batch.block(["x0", "x1"])
            if len(values):
                net.mean.mul_(0.9).add_(0.1 * values.detach().mean(0))
            return values - net.mean

        net = net_of(features, read)
        net.register_buffer("mean", torch.zeros(2))
        return net


@MUTANTS.fault("test_evaluating_changes_nothing_and_gives_the_same_again")
class Careless(ModelBase):
    """Clamps the batch in place."""

    def build(self, features):
        return net_of(features, lambda net, batch: batch.block(["x0", "x1"]).clamp_(-0.1, 0.1))


@MUTANTS.fault("test_training_follows_torchs_seed_and_leaves_the_batch_as_it_is")
class Noisy(ModelBase):
    """Drops inputs by numbers of Python's own."""

    def build(self, features):
        def read(net, batch):
            values = batch.block(["x0", "x1"])
            return values * (random.random() + 0.5) if net.training else values

        return net_of(features, read)


@MUTANTS.fault("test_it_predicts_from_its_inputs")
class Blind(ModelBase):
    """Looks at a column of zeros instead of its inputs."""

    def build(self, features):
        return net_of(features, lambda net, batch: batch.block(["x0", "x1"]) * 0)


@MUTANTS.fault("test_two_models_share_nothing_and_torch_stays_as_it_is")
class Shared(ModelBase):
    """Every model has the first one's layer."""

    layers: list = []  # noqa: RUF012

    def build(self, features):
        net = net_of(features)
        self.layers.append(net.layer)
        net.layer = self.layers[0]
        return net


@MUTANTS.fault("test_two_models_share_nothing_and_torch_stays_as_it_is")
class Meddling(ModelBase):
    """Takes all threads for whatever runs after it."""

    def build(self, features):
        import torch

        torch.set_num_threads(torch.get_num_threads() + 1)
        return net_of(features)


@MUTANTS.fault("test_it_learns_the_rows_of_a_batch")
class Frozen(ModelBase):
    """Computes one output by detached values."""

    def build(self, features):
        net = net_of(features)
        plain = net.forward
        net.forward = partial(self._without_a_gradient, plain)
        return net

    def _without_a_gradient(self, plain, batch):
        logits = plain(batch)
        return {**logits, "z": logits["z"].detach() + 0 * logits["y"]}


@hookimpl
def distcore_make_model(name):
    made = MUTANTS.named(name)
    return made and made()
