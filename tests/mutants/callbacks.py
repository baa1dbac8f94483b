"""Callbacks with a fault each, around the two of contrib: averaged weights, and steps by the
gradients of shifted weights."""

from __future__ import annotations

from contextlib import contextmanager

import torch
from tests.mutants.harness import Mutants

from distcore_core.hooks import hookimpl
from distcore_testing import CallbackSuite
from distcore_torch import Callback

DISTCORE_API = (1, 0)
MUTANTS = Mutants("callbacks", CallbackSuite)


@MUTANTS.sound
class Average(Callback):
    """Averages of the weights are evaluated and saved."""

    def __init__(self, module):
        self.module = module
        self.weights = dict(module.named_parameters())
        self.averages = {name: each.detach().clone() for name, each in self.weights.items()}

    def after_step(self, step):
        for name, each in self.averages.items():
            each.lerp_(self.weights[name].detach(), 0.1)

    @contextmanager
    def around_evaluation(self):
        before = {name: each.detach().clone() for name, each in self.weights.items()}
        self.set(self.averages)
        try:
            yield
        finally:
            self.set(before)

    def state(self):
        return self.averages

    def load_state(self, state):
        for name, each in self.averages.items():
            each.copy_(state[name])

    @torch.no_grad()
    def set(self, values):
        for name, each in self.weights.items():
            each.copy_(values[name])


@MUTANTS.fault("test_it_changes_what_is_trained_or_saved", quick=True)
class Idle(Average):
    """The averages are kept, and never evaluated."""

    @contextmanager
    def around_evaluation(self):
        yield


@MUTANTS.fault("test_an_evaluation_leaves_training_as_it_is", quick=True)
class KeepsAverages(Average):
    """After an evaluation training goes on with the averages."""

    @contextmanager
    def around_evaluation(self):
        self.set(self.averages)
        yield


@MUTANTS.fault("test_an_evaluation_leaves_training_as_it_is")
class CountsEvaluations(Average):
    """The average moves at each evaluation, too."""

    @contextmanager
    def around_evaluation(self):
        self.after_step(0)
        with super().around_evaluation():
            yield


@MUTANTS.fault("test_an_evaluation_that_fails_leaves_the_weights_as_they_are")
class Hopeful(Average):
    """The weights are put back only if the evaluation goes well."""

    @contextmanager
    def around_evaluation(self):
        before = {name: each.detach().clone() for name, each in self.weights.items()}
        self.set(self.averages)
        yield
        self.set(before)


@MUTANTS.fault("test_a_run_that_goes_on_from_a_checkpoint_has_the_same_bits")
class Forgetful(Average):
    """A checkpoint does not hold the averages."""

    def state(self):
        return {}

    def load_state(self, state):
        self.averages = {name: each.detach().clone() for name, each in self.weights.items()}


@MUTANTS.fault("test_a_run_that_goes_on_from_a_checkpoint_has_the_same_bits")
class HalfForgetful(Average):
    """What it counts for itself begins anew with each process."""

    def __init__(self, module):
        super().__init__(module)
        self.steps = 0

    def after_step(self, step):
        self.steps += 1
        for name, each in self.averages.items():
            each.lerp_(self.weights[name].detach(), max(0.1, 1 / self.steps))


@MUTANTS.fault("test_the_same_run_again_has_the_same_bits")
class Random(Average):
    """How far the average moves is drawn anew in each run."""

    def after_step(self, step):
        share = float(torch.rand(1, generator=torch.Generator().manual_seed(id(self))))
        for name, each in self.averages.items():
            each.lerp_(self.weights[name].detach(), share)


@MUTANTS.sound
class Shifted(Callback):
    """Steps by the gradients up the gradient."""

    def __init__(self, module):
        self.weights = list(module.parameters())

    def around_gradients(self, compute):
        compute()
        before = [each.detach().clone() for each in self.weights]
        with torch.no_grad():
            for each in self.weights:
                each.add_(each.grad, alpha=self.radius())
        compute()
        self.back(before)

    def radius(self):
        return 0.5

    @torch.no_grad()
    def back(self, before):
        for each, old in zip(self.weights, before, strict=True):
            each.copy_(old)


@MUTANTS.fault("test_an_exact_run_has_the_same_bits_for_any_number_of_ranks")
class ByMemory(Shifted):
    """The radius differs with the process."""

    def radius(self):
        import os

        return 0.5 + os.getpid() % 1000 / 1000


@MUTANTS.fault("test_an_exact_run_has_the_same_bits_for_any_number_of_ranks")
class ByRank(Shifted):
    """The radius is shared out over the ranks."""

    def radius(self):
        import os

        return 0.5 / int(os.environ.get("WORLD_SIZE", "1"))


@hookimpl
def distcore_make_member(kind, name, context):
    made = MUTANTS.named(name)
    return made and made(context["module"])
