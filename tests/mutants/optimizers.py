"""Optimizers with a fault each: averages of gradients."""

from __future__ import annotations

import torch
from tests.mutants.harness import Mutants

from distcore_core.hooks import hookimpl
from distcore_testing import OptimizerSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("optimizers", OptimizerSuite)


@MUTANTS.sound
class Momentum(torch.optim.Optimizer):
    """Steps along an average of gradients."""

    def __init__(self, parameters, learning_rate):
        super().__init__(parameters, {"lr": learning_rate})
        self.rate = learning_rate

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                self.move(group, each)

    def move(self, group, each):
        if each.grad is not None:
            each.sub_(self.average(each), alpha=group["lr"])

    def average(self, each):
        kept = self.state[each].setdefault("average", torch.zeros_like(each))
        return kept.mul_(0.5).add_(each.grad, alpha=0.5)


@MUTANTS.fault("test_it_descends_and_leaves_alone_what_has_no_gradient", quick=True)
class Ascending(Momentum):
    """Climbs."""

    def move(self, group, each):
        if each.grad is not None:
            each.add_(self.average(each), alpha=group["lr"])


@MUTANTS.fault("test_it_descends_and_leaves_alone_what_has_no_gradient")
class Decaying(Momentum):
    """Weights without a gradient shrink."""

    def move(self, group, each):
        each.mul_(1 - group["lr"] / 100)
        super().move(group, each)


@MUTANTS.fault("test_a_learning_rate_of_nothing_changes_nothing")
class OwnRate(Momentum):
    """Keeps the rate that it was made with."""

    def move(self, group, each):
        super().move({"lr": self.rate}, each)


@MUTANTS.fault("test_it_goes_on_from_a_checkpoint_to_the_same_bits")
class Beside(Momentum):
    """Its averages are no part of its state."""

    def average(self, each):
        self.kept = getattr(self, "kept", {})
        kept = self.kept.setdefault(each, torch.zeros_like(each))
        return kept.mul_(0.5).add_(each.grad, alpha=0.5)


@MUTANTS.fault("test_it_goes_on_from_a_checkpoint_to_the_same_bits")
class Counting(Momentum):
    """Counts its steps for itself."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        super().step()

    def average(self, each):
        return super().average(each) / min(self.steps, 5)


@MUTANTS.fault("test_the_same_steps_have_the_same_bits")
class Noisy(Momentum):
    """Adds noise to each step."""

    def average(self, each):
        return super().average(each) + 0.001 * torch.randn_like(each)


@MUTANTS.fault("test_its_parameters_have_the_same_order_each_time")
class Unordered(Momentum):
    """Takes its parameters out of a set, whose order is that of their places in memory."""

    def __init__(self, parameters, learning_rate):
        super().__init__(list(set(parameters)), learning_rate)


@MUTANTS.fault("test_it_descends_and_leaves_alone_what_has_no_gradient")
class Seeding(Momentum):
    """Sets torch's seed, which dropout draws by."""

    def step(self, closure=None):
        torch.manual_seed(1)
        super().step()


@hookimpl
def distcore_make_member(kind, name, context):
    made = MUTANTS.named(name)
    return made and made(**context)
