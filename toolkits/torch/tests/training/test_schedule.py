"""The schedules against torch's own, which Ludwig builds on."""

import math

import pytest
import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingWarmRestarts,
    LambdaLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from distcore_core.errors import PluginBroken
from distcore_torch.schedule_options import LearningRateScheduler
from distcore_torch.training.schedule import Plateau, Schedule, Shape, scaled

BASE, TOTAL, ROUND = 0.01, 60, 7


def ours(**options):
    schedule = Schedule(LearningRateScheduler(**options), Shape(BASE, TOTAL, ROUND))
    return [schedule.rate(step) for step in range(TOTAL)]


def torchs(warmup, make):
    """Learning rates of torch's schedulers, put together as Ludwig does."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)
    scheduler = make(optimizer)
    if warmup:
        rising = LambdaLR(optimizer, lambda step: step / max(1, warmup))
        scheduler = SequentialLR(optimizer, [rising, make(optimizer)], milestones=[warmup])
    rates = []
    for _ in range(TOTAL):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def linear(warmup):
    left = TOTAL - warmup
    return lambda optimizer: LambdaLR(
        optimizer, lambda step: max(0.0, (left - step) / max(1, left))
    )


def exponential(staircase):
    def factor(step):
        exponent = 1 + step / 10
        return 0.9 ** (math.ceil(exponent) if staircase else exponent)

    return lambda optimizer: LambdaLR(optimizer, factor)


@pytest.mark.parametrize("warmup_fraction", [0.0, 0.25])
def test_linear_decay_is_ludwigs(warmup_fraction):
    warmup = warmup_fraction * TOTAL
    assert ours(decay="linear", warmup_fraction=warmup_fraction) == pytest.approx(
        torchs(warmup, linear(warmup))
    )


@pytest.mark.parametrize("staircase", [False, True])
def test_exponential_decay_is_ludwigs(staircase):
    rates = ours(decay="exponential", decay_rate=0.9, decay_steps=10, staircase=staircase)
    assert rates == pytest.approx(torchs(0, exponential(staircase)))


@pytest.mark.parametrize(("t_0", "t_mult", "eta_min"), [(None, 1, 0.0), (5, 2, 0.001), (4, 1, 0.0)])
@pytest.mark.parametrize("warmup_evaluations", [0, 2])
def test_cosine_decay_is_torchs(t_0, t_mult, eta_min, warmup_evaluations):
    def make(optimizer):
        return CosineAnnealingWarmRestarts(optimizer, t_0 or ROUND, t_mult, eta_min)

    rates = ours(
        decay="cosine",
        t_0=t_0,
        t_mult=t_mult,
        eta_min=eta_min,
        warmup_evaluations=warmup_evaluations,
    )
    assert rates == pytest.approx(torchs(warmup_evaluations * ROUND, make), abs=1e-15)


def test_warmup_takes_the_longer_of_its_two_lengths():
    rates = ours(warmup_fraction=0.1, warmup_evaluations=2)
    assert rates[:3] == pytest.approx([0, BASE / 14, 2 * BASE / 14])
    assert rates[14:] == [BASE] * (TOTAL - 14)


def test_constant_says_so_and_a_reduction_multiplies():
    schedule = Schedule(
        LearningRateScheduler(reduce_on_plateau=2, reduce_on_plateau_rate=0.5),
        Shape(BASE, TOTAL, ROUND),
    )
    assert schedule.constant
    schedule.reductions = 2
    assert schedule.rate(9) == BASE / 4
    for changing in ({"decay": "linear"}, {"warmup_fraction": 0.1}, {"warmup_evaluations": 1}):
        options = LearningRateScheduler(**changing)
        assert not Schedule(options, Shape(BASE, TOTAL, ROUND)).constant


@pytest.mark.parametrize("direction", ["min", "max"])
def test_plateau_reduces_when_torch_does(direction):
    generator = torch.Generator().manual_seed(3)
    values = torch.rand(60, generator=generator).tolist()
    values += [max(values) * (1 + within) for within in (0.0, 9e-5, -9e-5, 9e-5, -9e-5, 9e-5)]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = ReduceLROnPlateau(optimizer, mode=direction, factor=0.5, patience=3)
    plateau, reductions = Plateau(limit=100, patience=3, direction=direction), 0
    for value in values:
        theirs.step(value)
        reductions += plateau.observe(value)
        assert optimizer.param_groups[0]["lr"] == 0.5**reductions
    assert reductions > 2


def test_plateau_stops_at_its_limit_and_goes_on_from_its_state():
    one, two = Plateau(2, 1, "min"), Plateau(2, 1, "min")
    reduced = 0
    for index in range(12):
        fresh = Plateau(2, 1, "min")
        fresh.restore(two.state())
        two = fresh
        now = one.observe(1.0 + index)
        assert two.observe(1.0 + index) == now
        reduced += now
    assert reduced == one.reductions == two.reductions == 2


def test_scaling():
    assert [scaled(0.1, how, 4) for how in ("constant", "sqrt", "linear")] == pytest.approx(
        [0.1, 0.2, 0.4]
    )


@pytest.mark.parametrize("rate", [None, "0.1", float("nan"), -0.001, math.inf])
def test_a_rate_that_is_none_is_told_by_its_schedule_and_step(monkeypatch, rate):
    """It ended in Python's words, days later perhaps, or climbed."""
    schedule = Schedule(LearningRateScheduler(decay="linear"), Shape(BASE, TOTAL, ROUND))
    monkeypatch.setattr(schedule, "_decay", lambda step: rate if step == 7 else BASE)
    assert schedule.rate(6) == BASE
    with pytest.raises(PluginBroken, match=r"decay: linear gave .* as the learning rate of step 7"):
        schedule.rate(7)
