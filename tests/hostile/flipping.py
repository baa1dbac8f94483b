"""Runs of a tiny network in which a bit flips; importable, so that ranks can do it."""

import re
from dataclasses import dataclass, field
from functools import partial

import torch

from distcore_core.errors import TrainingError
from distcore_testing.loops import TinyNet, TinyRun, make_strategy, tiny_loop

STEPS = 40
OPTIONS = {
    "batch_size": "auto",
    "effective_batch_size": 32,
    "epochs": STEPS // 5,
    "steps_per_checkpoint": STEPS,
    "early_stop": -1,
}  # fmt: skip
PARTS = ("weights", "exp_avg", "exp_avg_sq")
SIZES = {name: each.numel() for name, each in TinyNet(norm=True).named_parameters()}


@dataclass(frozen=True)
class Flip:
    """A bit of a float32 number of a tensor, flipped in a rank after so many steps.

    part: of PARTS. ledger_steps, more: options of the trainer."""

    rank: int
    step: int
    parameter: str
    part: str
    number: int
    bit: int
    ledger_steps: int = 10
    more: dict = field(default_factory=dict)
    checkpoints: str | None = None

    @property
    def name(self):
        return self.parameter if self.part == "weights" else f"{self.parameter} ({self.part})"

    @classmethod
    def random(cls, dice, world, **more):
        parameter = dice.choice(sorted(SIZES))
        number, bit = dice.randrange(SIZES[parameter]), dice.randrange(32)
        rank, step, part = dice.randrange(world), dice.randrange(1, STEPS - 10), dice.choice(PARTS)
        return cls(rank, step, parameter, part, number, bit, **more)


def flip(loop, case):
    """Flip the case's bit."""
    tensor = dict(loop.work.module.named_parameters())[case.parameter]
    if case.part != "weights":
        tensor = loop.stepper.optimizer.state[tensor][case.part]
    words = tensor.detach().view(-1).view(torch.int32)
    words[case.number] ^= -(1 << 31) if case.bit == 31 else 1 << case.bit


def outcome(rank, case, strategy):
    """What the run ended with: the error's text, or "finished"."""
    made = make_strategy(strategy)
    made.setup(rank)
    run = TinyRun(
        {**OPTIONS, "ledger_steps": case.ledger_steps, **case.more}, strategy, norm=True, rows=150
    )
    run = TinyRun(**{**vars(run), "checkpoints": case.checkpoints})
    try:
        loop, loader, _ = tiny_loop(run, made)
        if rank.index == case.rank:
            loader.actions[case.step] = partial(flip, loop, case)
        try:
            loop.run()
        except TrainingError as error:
            return f"{type(error).__name__}: {error}"
        return "finished"
    finally:
        made.teardown()


def all_outcomes(rank, cases, strategy):
    """The outcome of each case, in this rank."""
    return [outcome(rank, case, strategy) for case in cases]


def said(text):
    """(step, ranks, whether the rank saw it itself, tensors) of an error of the sentinel; None: it
    is another one."""
    itself = re.search(
        r"After step (\d+) the memory of rank (\d+) changed by itself: (.*?) is not what", text
    )
    if itself:
        return int(itself[1]), {int(itself[2])}, True, [re.sub(r" \(bit .*", "", itself[3])]
    others = re.search(
        r"After step (\d+) ranks? ([\d, and]+?)(?: of \d+)? differs? .*? ?in (.*?)(?:, and no|\. A "
        r"bit)",
        text,
    )
    if others:
        ranks = {int(each) for each in re.findall(r"\d+", others[2])}
        return int(others[1]), ranks, False, re.split(r", | and \d+ more", others[3])
    return None
