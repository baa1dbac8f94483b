"""Trainers with a fault each, around the local one."""

from __future__ import annotations

import base64
import json
import pickle
import random
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from tests.mutants.harness import Around, Mutants

from distcore_core.contracts import TRAINER
from distcore_core.hooks import hookimpl
from distcore_core.registry.manager import Plugins
from distcore_data.features import Features
from distcore_data.stores.run_sync import CHECKPOINTS
from distcore_testing import TrainerSuite
from distcore_torch import tell_checkpoint

DISTCORE_API = (1, 0)
MUTANTS = Mutants("trainers", TrainerSuite)


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


@MUTANTS.fault("test_the_seed_matters")
class IgnoresSeed(Around):
    """Every seed gives the same model."""

    def fit(self, job, backend, progress):
        return self.inner.fit(replace(job, seed=7), backend, progress)


@MUTANTS.fault("test_initial_weights_are_honoured_or_refused")
class IgnoresInitialWeights(Around):
    """Starts from nothing, also if it is given a model to start from."""

    def fit(self, job, backend, progress):
        return self.inner.fit(replace(job, initial_weights=None), backend, progress)


@MUTANTS.fault("test_a_run_to_go_on_with_is_honoured_or_refused")
class IgnoresResume(Around):
    """Begins anew, also if it is given a run to go on with."""

    def fit(self, job, backend, progress):
        shutil.rmtree(job.directory / CHECKPOINTS, ignore_errors=True)
        return self.inner.fit(replace(job, resume=None), backend, progress)


@MUTANTS.fault("test_a_run_that_goes_on_ends_as_if_it_had_not_stopped")
class ForgetsTheOptimizer(Around):
    """A run that goes on has a fresh optimizer."""

    def fit(self, job, backend, progress):
        with patch("distcore_torch.training.loop.load_optimizer_state"):
            return self.inner.fit(job, backend, progress)


@MUTANTS.fault("test_a_run_that_a_listener_ended_goes_on_as_if_it_had_not_stopped")
class ForgetsWithALengthOfItsOwn(ForgetsTheOptimizer):
    """That, of a trainer whose own options say how many epochs there are."""

    def fit(self, job, backend, progress):
        section = {**job.config["trainer"], "epochs": 3, "train_steps": None}
        config = {**job.config, "trainer": section}
        return super().fit(replace(job, config=config), backend, progress)


@MUTANTS.fault("test_a_run_that_goes_on_ends_as_if_it_had_not_stopped")
class RepeatsAnEpoch(Around):
    """A run that goes on sees the rows of its first epoch again."""

    def fit(self, job, backend, progress):
        from distcore_torch.training.state import TrainState

        read = TrainState.from_json
        with patch.object(TrainState, "from_json", lambda saved: read({**saved, "epoch": 0})):
            return self.inner.fit(job, backend, progress)


class Telling(Around):
    """Tells listeners something else of an evaluation."""

    def fit(self, job, backend, progress):
        from distcore_torch.training import rank

        def told(plugins, directory, epoch, step, metrics):
            return tell(plugins, directory, *self.changed(epoch, step, metrics))

        tell = rank._tell_round
        with patch.object(rank, "_tell_round", told):
            return self.inner.fit(job, backend, progress)


@MUTANTS.fault("test_listeners_hear_of_evaluations_and_checkpoints")
class TellsNoStep(Telling):
    """Every evaluation is told as that of the first step."""

    def changed(self, epoch, step, metrics):
        return epoch, 1, metrics


@MUTANTS.fault("test_listeners_hear_of_evaluations_and_checkpoints")
class TellsTrainingScores(Telling):
    """The scores of the training split are told as those of the validation split."""

    def changed(self, epoch, step, metrics):
        return epoch, step, {**metrics, "validation": metrics["training"]}


@MUTANTS.fault("test_listeners_hear_of_evaluations_and_checkpoints", quick=True)
class TellsNobody(Around):
    """No evaluation is told."""

    def fit(self, job, backend, progress):
        with patch("distcore_torch.training.rank._tell_round", lambda *_: ""):
            return self.inner.fit(job, backend, progress)


@MUTANTS.fault("test_listeners_hear_of_evaluations_and_checkpoints")
class HidesCheckpoints(Around):
    """No checkpoint is told."""

    def fit(self, job, backend, progress):
        with patch("distcore_torch.training.rank._tell_checkpoint"):
            return self.inner.fit(job, backend, progress)


@MUTANTS.fault("test_no_checkpoint_is_written_if_none_is_to_be_kept")
class KeepsCheckpoints(Around):
    """Checkpoints are written, whatever the job says."""

    def fit(self, job, backend, progress):
        return self.inner.fit(replace(job, save_checkpoints=True), backend, progress)


@MUTANTS.fault("test_every_evaluation_is_in_the_training_log")
class TellsNoRound(Around):
    """No evaluation is told to the progress."""

    def fit(self, job, backend, progress):
        with patch.object(progress, "tell", lambda found: None):
            return self.inner.fit(job, backend, progress)


@MUTANTS.fault("test_every_evaluation_is_in_the_training_log")
class TellsOneRound(Around):
    """Every evaluation is told to the progress as that of the last step."""

    def fit(self, job, backend, progress):
        tell = progress.tell
        with patch.object(progress, "tell", lambda found: tell(replace(found, step=26))):
            return self.inner.fit(job, backend, progress)


@MUTANTS.fault("test_training_ends_where_a_listener_asks_it_to", quick=True)
class HearsNobody(Around):
    """Goes on training, whatever listeners answer."""

    def fit(self, job, backend, progress):
        from distcore_torch.training import rank

        tell = rank._tell_round
        with patch.object(rank, "_tell_round", lambda *told: str(tell(*told))[:0]):
            return self.inner.fit(job, backend, progress)


@MUTANTS.fault("test_training_ends_where_a_listener_asks_it_to")
class TrainsOnInSilence(Around):
    """Asked to end, it tells no more, and goes on training."""

    def fit(self, job, backend, progress):
        from distcore_torch.training import rank

        def told(*evaluation):
            if not asked and (answer := tell(*evaluation)):
                asked.append(answer)
            return ""

        def line(found):
            if not asked:
                show(found)

        asked, tell, show = [], rank._tell_round, progress.tell
        with patch.object(rank, "_tell_round", told), patch.object(progress, "tell", line):
            return self.inner.fit(job, backend, progress)


@MUTANTS.fault("test_the_config_and_the_process_stay_as_they_are")
class ChangesTheConfig(Around):
    """Writes what it found out into the job's config."""

    def fit(self, job, backend, progress):
        job.config["trainer"]["batch_size"] = 16
        return self.inner.fit(job, backend, progress)


@MUTANTS.fault("test_the_config_and_the_process_stay_as_they_are")
class SeedsNumpy(Around):
    """Seeds numpy's global random numbers."""

    def fit(self, job, backend, progress):
        np.random.seed(job.seed)
        return self.inner.fit(job, backend, progress)


@MUTANTS.fault("test_the_config_and_the_process_stay_as_they_are")
class SetsThreads(Around):
    """Leaves torch with another number of threads."""

    def fit(self, job, backend, progress):
        import torch

        torch.set_num_threads(torch.get_num_threads() + 1)
        return self.inner.fit(job, backend, progress)


class Peeking(Around):
    """The first step of each epoch is one on rows of another split."""

    split = "validation"

    def fit(self, job, backend, progress):
        from distcore_torch.training import rank

        made, split = rank._Loaders.make, self.split

        def make(loaders, asked, rows, shuffle=False):
            loader = made(loaders, asked, rows, shuffle)
            if shuffle:
                batches, other = loader.batches, made(loaders, split, rows)
                loader.batches = lambda *of: _beginning_with(other.batches(0), batches(*of))
            return loader

        with patch.object(rank._Loaders, "make", make):
            return self.inner.fit(job, backend, progress)


def _beginning_with(others, batches):
    first = next(batches)
    yield next(others, first)
    yield from batches


@MUTANTS.fault("test_only_rows_of_the_training_split_are_learned")
class LearnsValidationRows(Peeking):
    """Trains on rows of the validation split, too."""


@MUTANTS.fault("test_only_rows_of_the_training_split_are_learned")
class LearnsTestRows(Peeking):
    """Trains on rows of the test split, too."""

    split = "test"


@MUTANTS.fault("test_what_was_trained_before_changes_nothing")
class SharesADefault(Around):
    """Weights of losses are kept in a default that every training shares."""

    def fit(self, job, backend, progress, weights={}):  # noqa: B006 - the fault
        outputs = [dict(each) for each in job.config["output_features"]]
        for each in outputs:
            weight = each.get("loss", {}).get("weight", weights.get(each["name"], 1.0))
            weights[each["name"]] = weight
            each["loss"] = {**each.get("loss", {}), "weight": weight}
        changed = replace(job, config={**job.config, "output_features": outputs})
        return self.inner.fit(changed, backend, progress)


@MUTANTS.fault("test_class_weights_are_honoured_or_refused")
class IgnoresClassWeights(Around):
    """Every class weighs as much as any other."""

    def fit(self, job, backend, progress):
        fitted = Features.fitted

        def unweighted(features, metadata):
            for each in metadata.values():
                each.update({"class_weights": None} if "class_weights" in each else {})
            return fitted(features, metadata)

        with patch.object(Features, "fitted", unweighted):
            return self.inner.fit(job, backend, progress)


@MUTANTS.fault("test_weights_of_losses_are_honoured_or_refused")
class IgnoresLossWeights(Around):
    """Every output's loss weighs as much as any other's."""

    def fit(self, job, backend, progress):
        from distcore_tabular.feature import TabularFeature

        with patch.object(TabularFeature, "loss_weight", 1.0):
            return self.inner.fit(job, backend, progress)


class Changing(Around):
    """Changes what is predicted for an output."""

    output = "k"

    def load(self, directory, features, *, trust=False):
        predictor = self.inner.load(directory, features, trust=trust)
        predict = predictor.predict

        def changed(batch):
            found = predict(batch)
            return {**found, self.output: self.change(found[self.output])}

        predictor.predict = changed
        return predictor


@MUTANTS.fault("test_every_output_is_learned")
class RotatesClasses(Changing):
    """The probability of a class is told as that of the one after it."""

    def change(self, found):
        return np.roll(found, 1, axis=1)


@MUTANTS.fault("test_every_output_is_learned")
class TurnsNumbers(Changing):
    """Numbers are predicted with the other sign."""

    output = "z"

    def change(self, found):
        return -found


@MUTANTS.fault("test_the_cache_and_the_dataset_stay_as_they_are")
class WritesIntoTheCache(Around):
    """Leaves a note of its own in a file of the cache."""

    def fit(self, job, backend, progress):
        result = self.inner.fit(job, backend, progress)
        with open(Path(job.cache.directory, job.cache.key, "manifest.json"), "a") as file:
            file.write("\n")
        return result


@MUTANTS.fault("test_a_model_is_loaded_without_unpickling")
class Unpickles(Around):
    """Its model is read through a pickle that lies in JSON."""

    def load(self, directory, features, *, trust=False):
        text = json.dumps(base64.b64encode(pickle.dumps({"format": 1})).decode())
        assert pickle.loads(base64.b64decode(json.loads(text))) == {"format": 1}  # noqa: S301
        return self.inner.load(directory, features, trust=trust)


@MUTANTS.sound
class OtherNames(Around):
    """Keeps checkpoints by names of its own, too."""

    tells = staticmethod(tell_checkpoint)

    def fit(self, job, backend, progress):
        result = self.inner.fit(job, backend, progress)
        with job.open() as opened:
            for each in (job.directory / CHECKPOINTS).glob("step-*"):
                step = int(each.name[5:])
                self.keep(opened, step, each, each.with_name(f"round-{step}"))
        return result

    def keep(self, opened, step, saved, named):
        shutil.copytree(saved, named, dirs_exist_ok=True)
        self.tells(opened, step, named)


@MUTANTS.fault("test_listeners_hear_of_evaluations_and_checkpoints")
class HidesOtherNames(OtherNames):
    """Nobody is told of checkpoints by names of its own."""

    def tells(self, *told):
        pass


BEST = "test_the_model_that_is_kept_is_that_of_the_best_evaluation"
ELSEWHERE = "test_another_process_trains_and_predicts_the_same"


@MUTANTS.fault(BEST)
class KeepsTheLast(Around):
    """The weights of the last evaluation are saved, whichever was the best."""

    def fit(self, job, backend, progress):
        from distcore_torch.training import rank

        def last(job, features, reference, finished, plan):
            changed = replace(finished, best_weights=finished.last_weights)
            return written(job, features, reference, changed, plan)

        written = rank._written
        with patch.object(rank, "_written", last):
            return self.inner.fit(job, backend, progress)


class Judging(Around):
    """Judges otherwise which evaluation is the best."""

    def fit(self, job, backend, progress):
        from distcore_torch.training.state import TrainState

        def judged(state, value, higher, label):
            return judge(state, value, self.higher(higher), label)

        judge = TrainState.judge
        with patch.object(TrainState, "judge", judged):
            return self.inner.fit(job, backend, progress)


@MUTANTS.fault(BEST)
class KeepsTheWorst(Judging):
    """The worst evaluation counts as the best."""

    def higher(self, higher):
        return not higher


@MUTANTS.fault(BEST)
class Minimises(Judging):
    """The lowest value is the best, of whatever metric."""

    def higher(self, higher):
        return False


@MUTANTS.fault("test_a_run_that_goes_on_ends_as_if_it_had_not_stopped")
class BeginsItsEpochAnew(Around):
    """A run that goes on in the middle of an epoch sees that epoch from its first row."""

    def fit(self, job, backend, progress):
        from distcore_torch.training.state import TrainState

        read = TrainState.from_json
        with patch.object(
            TrainState, "from_json", lambda saved: read({**saved, "step_in_epoch": 0})
        ):
            return self.inner.fit(job, backend, progress)


@MUTANTS.fault("test_a_run_that_goes_on_ends_as_if_it_had_not_stopped")
class ForgetsTheSteps(Around):
    """The optimizer of a run that goes on has its moments, and counts its steps anew."""

    def fit(self, job, backend, progress):
        from distcore_torch.training import loop

        def counted_anew(optimizer, saved, tensors):
            load(optimizer, saved, tensors)
            for each in optimizer.state.values():
                each["step"].zero_()

        load = loop.load_optimizer_state
        with patch.object(loop, "load_optimizer_state", counted_anew):
            return self.inner.fit(job, backend, progress)


@MUTANTS.fault(ELSEWHERE)
class SeedsByHash(Around):
    """The seed is mixed with Python's hash of a name."""

    def fit(self, job, backend, progress):
        changed = replace(job, seed=(job.seed + hash("weights")) % 2**31)
        return self.inner.fit(changed, backend, progress)


@MUTANTS.fault(ELSEWHERE)
class InMemory(Around):
    """What was trained here is kept in memory, and the file lacks some of it."""

    kept: dict = {}  # noqa: RUF012

    def fit(self, job, backend, progress):
        result = self.inner.fit(job, backend, progress)
        self.kept[self.key(result.model)] = True
        return result

    def key(self, folder):
        return (Path(folder) / "weights.safetensors").read_bytes()

    def load(self, directory, features, *, trust=False):
        import torch

        predictor = self.inner.load(directory, features, trust=trust)
        if self.key(directory) not in self.kept:
            for weight in predictor.module.parameters():
                torch.nn.init.zeros_(weight)
        return predictor


@MUTANTS.fault("test_the_config_and_the_process_stay_as_they_are")
class Undying(Around):
    """A thread of its own keeps the process from ending."""

    def fit(self, job, backend, progress):
        threading.Thread(target=threading.Event().wait, args=(25,)).start()
        return self.inner.fit(job, backend, progress)


@MUTANTS.fault("test_listeners_hear_of_evaluations_and_checkpoints")
class TellsTooEarly(OtherNames):
    """A checkpoint is told before its weights are there."""

    def keep(self, opened, step, saved, named):
        named.mkdir(exist_ok=True)
        (named / "state.json").touch()
        self.tells(opened, step, named)
        shutil.copytree(saved, named, dirs_exist_ok=True)


@hookimpl
def distcore_make_trainer(name):
    made = MUTANTS.named(name)
    return made and made(Plugins().make(TRAINER, "local", {}))
