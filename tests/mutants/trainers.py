"""Trainers with a fault each, around the local one."""

from __future__ import annotations

import random

from tests.mutants.harness import Around, Mutants

from distcore_core.contracts import TRAINER
from distcore_core.hooks import hookimpl
from distcore_core.registry.manager import Plugins
from distcore_testing import TrainerSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants(
    "trainers", TrainerSuite, {"trainer": {"epochs": 1, "batch_size": 64}, "accuracy": 0.4}
)


@MUTANTS.sound
class Sound(Around):
    """The local one."""


@MUTANTS.fault("test_nothing_saved_is_a_pickle", quick=True)
class Pickling(Around):
    """Part of what it saves is a pickle."""

    def fit(self, job, backend, progress):
        import pickle

        result = self.inner.fit(job, backend, progress)
        (result.model / "extra.bin").write_bytes(pickle.dumps({"weights": [1.0]}))
        return result


@MUTANTS.fault("test_the_same_seed_gives_the_same_model")
class Restless(Around):
    """Another seed each time."""

    def fit(self, job, backend, progress):
        from dataclasses import replace

        return self.inner.fit(replace(job, seed=random.randrange(1 << 30)), backend, progress)


@MUTANTS.fault("test_evaluating_the_saved_model_gives_the_same_scores")
class Amnesic(Around):
    """Loads weights that are not the ones it trained."""

    def load(self, directory, features, *, trust=False):
        import torch

        predictor = self.inner.load(directory, features, trust=trust)
        for weight in predictor.module.parameters():
            torch.nn.init.normal_(weight)
        return predictor


@MUTANTS.fault("test_a_loaded_model_predicts_every_row_in_order", quick=True)
class Muddled(Around):
    """Predicts rows from the batch's other end."""

    def load(self, directory, features, *, trust=False):
        predictor = self.inner.load(directory, features, trust=trust)
        predict = predictor.predict
        predictor.predict = lambda batch: {
            name: each[::-1].copy() for name, each in predict(batch).items()
        }
        return predictor


@hookimpl
def distcore_make_trainer(name):
    made = MUTANTS.named(name)
    return made and made(Plugins().make(TRAINER, "local", {}))
