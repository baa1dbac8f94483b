"""What every optimizer and every schedule of the learning rate must hold: it descends, follows the
rate, and goes on from what a checkpoint keeps."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from distcore_testing.member_values import member, process_stays

if TYPE_CHECKING:
    import torch


class OptimizerSuite:
    """Subclass with `name`, and `options` if needed.

    learning_rate: with which it descends. steps: in which it halves the distance to the goal.
    searches: whether it finds the length of a step by itself, so that the rate only begins it.
    """

    name: str
    options: Mapping[str, Any] = {}
    learning_rate = 0.05
    steps = 200
    searches = False

    def problem(self) -> tuple[list[torch.nn.Parameter], torch.optim.Optimizer]:
        """Parameters of several shapes, the last of them without gradients, and the optimizer."""
        import torch

        dice = torch.Generator().manual_seed(1)
        shapes = ((3, 2), (4,), (), (2,))
        weights = [torch.nn.Parameter(torch.randn(shape, generator=dice)) for shape in shapes]
        context = {"parameters": weights, "learning_rate": self.learning_rate}
        return weights, member("optimizers", self.name, self.options, **context)

    def step(self, weights: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
        """One towards 3 for all but the last."""
        import torch

        def closure() -> torch.Tensor:
            loss = torch.zeros(())
            for each in weights[:-1]:
                each.grad = None
                loss = loss + (each - 3).square().sum()
            loss.backward()
            return loss

        closure()
        optimizer.step(closure)  # type: ignore[arg-type]  # as the loop calls L-BFGS

    def test_it_descends_and_leaves_alone_what_has_no_gradient(self) -> None:
        weights, optimizer = self.problem()
        far = [float((each - 3).detach().abs().max()) for each in weights]
        alone = weights[-1].detach().clone()
        with process_stays():
            for _ in range(self.steps):
                self.step(weights, optimizer)
        for each, before in zip(weights[:-1], far, strict=False):
            assert float((each - 3).detach().abs().max()) < before / 2
        assert weights[-1].equal(alone)

    def test_a_learning_rate_of_nothing_changes_nothing(self) -> None:
        """The loop sets the rate of every step."""
        if self.searches:
            pytest.skip("a line search chooses the step")
        weights, optimizer = self.problem()
        self.step(weights, optimizer)
        before = [each.detach().clone() for each in weights]
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        self.step(weights, optimizer)
        assert all(each.equal(old) for each, old in zip(weights, before, strict=True))
        for group in optimizer.param_groups:
            group["lr"] = self.learning_rate
        self.step(weights, optimizer)
        assert not weights[0].equal(before[0])

    def test_it_goes_on_from_a_checkpoint_to_the_same_bits(self) -> None:
        """Its state is numbers and tensors; whatever else it remembers is lost."""
        from distcore_torch.training.optim import load_optimizer_state, optimizer_state

        weights, optimizer = self.problem()
        for _ in range(3):
            self.step(weights, optimizer)
        saved, tensors = optimizer_state(optimizer)
        again, other = self.problem()
        for each, mine in zip(again, weights, strict=True):
            each.data.copy_(mine.data)
        load_optimizer_state(other, json.loads(json.dumps(saved)), tensors)
        for _ in range(3):
            self.step(weights, optimizer)
            self.step(again, other)
        assert all(each.equal(mine) for each, mine in zip(again, weights, strict=True))

    def test_its_parameters_have_the_same_order_each_time(self) -> None:
        """A checkpoint tells whose state is whose by their place: an order of a set is none."""
        found, problems = set(), [self.problem() for _ in range(8)]  # each at places of its own
        for weights, optimizer in problems:
            places = {id(each): place for place, each in enumerate(weights)}
            groups = [each for group in optimizer.param_groups for each in group["params"]]
            found.add(tuple(places[id(each)] for each in groups))
        assert len(found) == 1, f"{len(found)} orders in 8 times"
        assert sorted(*found) == list(range(len(weights))), "parameters are missing"

    def test_the_same_steps_have_the_same_bits(self) -> None:
        found = []
        for _ in range(2):
            weights, optimizer = self.problem()
            for _ in range(5):
                self.step(weights, optimizer)
            found.append(weights)
        assert all(each.equal(mine) for each, mine in zip(*found, strict=True))


class ScheduleSuite:
    """Subclass with `name`, and `options` if needed.

    begins: whether step 0 has the learning rate that is asked for.
    """

    name: str
    options: Mapping[str, Any] = {}
    begins = True

    def rates(self, steps: float = 50, rate: float = 0.1) -> Any:
        """Step → learning rate."""
        context = {"learning_rate": rate, "steps": steps, "steps_per_round": 10}
        return member("schedules", self.name, self.options, **context)

    def test_every_step_has_a_rate(self) -> None:
        """Finite and not negative, in runs of any length, also a step after the last."""
        for steps in (500, 50, 7.5, 1, 0.5):
            made = self.rates(steps)
            found = [float(made(step)) for step in range(math.ceil(steps) + 2)]
            assert all(math.isfinite(each) and each >= 0 for each in found)
            assert max(found) > 0

    def test_a_rate_is_a_function_of_the_step_alone(self) -> None:
        """A run that goes on asks a new one, from where it stands."""
        made = self.rates()
        found = [float(made(step)) for step in range(50)]
        assert [float(made(step)) for step in reversed(range(50))] == found[::-1]
        assert [float(self.rates()(step)) for step in (49, 7)] == [found[49], found[7]]

    def test_it_schedules_something(self) -> None:
        """It is not the same rate all the time, and follows the one that is asked for."""
        made, larger = self.rates(), self.rates(rate=0.2)
        assert len({float(made(step)) for step in range(50)}) > 1
        assert float(larger(1)) > float(made(1))
