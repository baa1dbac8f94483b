"""Runs of a tiny network in which NaN or infinity is planted; importable, so that ranks of a
worker group can do it."""

import math
import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from distcore_core.errors import Diverged, TrainingError
from distcore_testing.loops import TinyRun, make_strategy, tiny_loop, train_tiny
from distcore_torch.training import checkpoint
from distcore_torch.training.finite import not_finite

PLACES = ("loss", "logits", "gradient", "weights", "moments", "statistics")
OPTIONS = {
    "epochs": 3,
    "steps_per_checkpoint": 4,
    "early_stop": -1,
    "learning_rate_scaling": "constant",
}
SETTINGS = (
    {},
    {"gradient_accumulation_steps": 2, "batch_size": 8},
    {"gradient_clipping": None},
    {"gradient_clipping": {"clipvalue": 0.1}},
    {"use_mixed_precision": True},
    {"optimizer": "adamw"},
)
STEPS = 14
"""Fewer than any of these runs has."""


@dataclass(frozen=True)
class Case:
    """value, planted in a place before a step, in these ranks."""

    place: str
    value: float
    step: int
    ranks: tuple[int, ...]
    setting: int
    folder: str

    def run(self, strategy):
        return TinyRun(
            {**OPTIONS, **SETTINGS[self.setting]}, strategy, checkpoints=self.folder, norm=True
        )


def plant(loop, case):
    """Put the value where the case says."""
    module, stepper = loop.work.module, loop.stepper
    with torch.no_grad():
        if case.place == "loss":
            stepper.sums += case.value
        elif case.place == "weights":
            module.last.weight[0, 0] = case.value
        elif case.place == "statistics":
            module.norm.running_var[0] = case.value
        elif case.place == "moments":
            stepper.optimizer.state[module.first.weight]["exp_avg"][0, 0] = case.value
        elif case.place == "gradient":
            once(module.first.weight.register_hook, lambda gradient: gradient * case.value)
        else:
            once(
                module.register_forward_hook,
                lambda _, __, logits: {**logits, "y": logits["y"] * case.value},
            )


def once(register, change):
    """A hook that goes when it was called."""
    handles = []

    def hook(*arguments):
        handles[0].remove()
        return change(*arguments)

    handles.append(register(hook))


def tried(rank, case, strategy):
    """What became of a planted run: "finished" or the error's class; then it goes on without,
    and ends as `digest`."""
    made = make_strategy(strategy)
    made.setup(rank)
    try:
        loop, loader, _ = tiny_loop(case.run(strategy), made)
        if rank.index in case.ranks:
            loader.actions[case.step] = partial(plant, loop, case)
        try:
            finished = loop.run()
        except Diverged:
            outcome = "Diverged"
        except TrainingError as error:
            seen = re.search(r"differs? (from the others )?in |changed by itself", str(error))
            outcome = "ranks differ" if seen else str(error)
        else:
            outcome = "finished"
            assert not not_finite(finished.best_weights.items())
            assert not not_finite(finished.last_weights.items())
            assert math.isfinite(finished.state.best["value"])
    finally:
        made.teardown()
    return outcome


def all_tried(rank, cases, strategy):
    """[(outcome, digest of the run that goes on from what was kept, digest of an undisturbed
    one)] in every rank."""
    whole = {}
    found = []
    for case in cases:
        outcome = tried(rank, case, strategy)
        # Rank 0 alone: it is also the one that writes there.
        folders = checkpoint.list_checkpoints(Path(case.folder)) if rank.index == 0 else []
        kept = [checkpoint.load(each) for each in folders]
        assert all(not not_finite(each.tensors.items()) for each in kept), case
        if case.setting not in whole:
            whole[case.setting] = train_tiny(rank, replace(case.run(strategy), checkpoints=None))[
                "digest"
            ]
        again = train_tiny(rank, case.run(strategy))["digest"] if outcome != "finished" else None
        found.append((outcome, again, whole[case.setting]))
    return found
