"""The training loop of one rank: steps, evaluation rounds, best weights, early stopping,
checkpoints, resume."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from distcore_core.contracts import JSON, FeatureSet, Loader
from distcore_core.errors import CheckpointError, TrainingError
from distcore_data.stores.run_sync import how_to_go_on
from distcore_torch.training import checkpoint
from distcore_torch.training.callbacks import Callbacks
from distcore_torch.training.determinism import (
    one_order,
    one_thread,
    own_random_numbers,
    quiet_collector,
)
from distcore_torch.training.finite import Watch
from distcore_torch.training.heartbeat import COMPUTING, LOADING, heartbeat
from distcore_torch.training.interrupt import Interrupt
from distcore_torch.training.ledger import Ledger
from distcore_torch.training.monitor import Monitor, tell_passed_over
from distcore_torch.training.optim import load_optimizer_state, optimizer_state, set_learning_rate
from distcore_torch.training.round import round_of
from distcore_torch.training.rounds import Rounds
from distcore_torch.training.saver import Saver
from distcore_torch.training.schedule import Plateau, Schedule, Shape
from distcore_torch.training.scores import import_metrics
from distcore_torch.training.sentinel import Sentinel
from distcore_torch.training.state import TrainState, check_identity
from distcore_torch.training.step import Stepper
from distcore_torch.training.stragglers import Stragglers
from distcore_torch.training.strategy import Waiting
from distcore_torch.training.torch_model import load_weights
from distcore_torch.training.unsaved import UnsavedBuffers

if TYPE_CHECKING:
    from distcore_core.contracts import ResultsStore
    from distcore_core.progress import Progress
    from distcore_torch.train_options import TrainerOptions
    from distcore_torch.training.plan import TrainPlan
    from distcore_torch.training.strategy import Strategy

log = logging.getLogger("distcore")

Weights = dict[str, torch.Tensor]


@dataclass
class Work:
    """What a rank trains with and where it writes.

    module: on the strategy's device. train: the loader of global batches. validation,
    train_in_order: loaders for evaluation, or None. checkpoints: folder, or None if none are kept.
    ledger: file, or None. mirror: the bucket that these are copied to before a checkpoint counts as
    saved, or None. identity: see `state.identity`.
    on_round(epoch, step, scores), on_checkpoint(step, path): told in rank 0 alone; on_round answers
        why training should end here, or nothing.
    """

    module: torch.nn.Module
    features: FeatureSet
    train: Loader
    validation: Loader | None
    train_in_order: Loader | None
    plan: TrainPlan
    seed: int
    checkpoints: Path | None = None
    ledger: Path | None = None
    mirror: ResultsStore | None = None
    identity: JSON = field(default_factory=dict)
    on_round: Callable[[int, int, JSON], str | None] | None = None
    on_checkpoint: Callable[[int, Path], Any] | None = None

    @property
    def home(self) -> Path | str | None:
        """Where people find the run that has the checkpoints; None if none are kept."""
        if self.checkpoints is None:
            return None
        return self.checkpoints.parent if self.mirror is None else self.mirror.url

    def place(self, checkpoint: Path) -> Path | str:
        """Where people find a checkpoint: in the bucket, if results go to one."""
        if self.mirror is None:
            return checkpoint
        return self.mirror.where(f"{checkpoint.parent.name}/{checkpoint.name}")


@dataclass
class Finished:
    """What a rank ends with: the best round's weights (without validation rows the last ones) and
    the last, by state_dict's names (rank 0's are written). stopped: why an extension had it
    end before its time."""

    best_weights: Weights
    last_weights: Weights
    state: TrainState
    stopped: str = ""


class TrainLoop:
    """One rank's loop. Every rank of the worker group runs it with the same options; only
    loaders differ."""

    def __init__(
        self, work: Work, options: TrainerOptions, strategy: Strategy, progress: Progress
    ) -> None:
        self.beat = heartbeat()
        ranks, strategy = strategy, Waiting(strategy, self.beat)
        self.work, self.options, self.strategy, self.progress = work, options, strategy, progress
        plan = work.plan
        strategy.prepare(work.module)
        self.callbacks = Callbacks.of(options.callbacks, work.module)
        self.stepper = Stepper(
            work.module,
            work.features,
            options,
            strategy,
            learning_rate=plan.learning_rate,
            micro_rows=plan.micro_rows,
            seed=work.seed,
            around=self.callbacks.gradients,
        )
        shape = Shape(plan.learning_rate, plan.total_steps, plan.steps_per_round)
        self.schedule = Schedule(options.learning_rate_scheduler, shape)
        self.monitor = Monitor(work.features, options, work.validation is not None)
        if self.monitor.passed_over and strategy.rank.index == 0:
            tell_passed_over(self.monitor.passed_over, "the last weights are kept")
        loaders = {"training": work.train_in_order, "validation": work.validation}
        self.rounds = Rounds(
            work.module,
            work.features,
            {split: each for split, each in loaders.items() if each is not None},
            self.stepper,
            strategy,
            self.monitor,
            exact=options.exact,
            beat=self.beat,
        )
        scheduler = options.learning_rate_scheduler
        self.plateau = Plateau(
            scheduler.reduce_on_plateau,
            scheduler.reduce_on_plateau_patience,
            self.monitor.plateau_direction,
        )
        self.state = TrainState()
        self.best_weights: Weights = {}
        self.stopped = ""
        self._stragglers = Stragglers()
        self._first = strategy.rank.index == 0
        kept = self._first and work.ledger is not None and options.ledger_steps
        self.ledger = Ledger(work.ledger) if kept and work.ledger is not None else None
        self.saver = None
        if self._first and work.checkpoints is not None:
            self.saver = Saver(
                work.checkpoints, work.mirror, self.ledger, self.beat, work.on_checkpoint
            )
        self.sentinel = Sentinel(
            work.module, self.stepper.optimizer, ranks, options.ledger_steps, self.beat, self.ledger
        )
        self.stepper.before_update = self.sentinel.before_update
        self.watch = Watch(
            work.module,
            self.stepper.optimizer,
            strategy,
            [feature.name for feature in work.features.outputs],
        )

    # -------------------------------------------------------------- the story

    def run(self) -> Finished:
        """Train to the end. Raises TrainingError if ranks disagree, Diverged if the weights are not
        finite, and Stopped after ctrl-C or SIGTERM (a checkpoint was saved, where checkpoints
        are)."""
        plan, state = self.work.plan, self.state
        rows = plan.rows / plan.steps_per_epoch  # of a step: the last of an epoch may have fewer
        self.progress.begin("train", plan.total_steps, "steps", rows)
        self.progress.first = self.progress.done = state.step  # `first` first: it is read meanwhile
        self.work.module.train()
        self._unsaved = UnsavedBuffers(self.work.module) if self._first else None
        if self.work.validation is not None or self.work.train_in_order is not None:
            import_metrics(self.work.features)
        with (
            Interrupt(self.options.grace_seconds, self._last_words) as interrupt,
            quiet_collector(),
            own_random_numbers(self.strategy.device),
            one_order(self.strategy.device),
            one_thread() if self.options.exact else nullcontext(),
            self.sentinel.watching(state.step),
            self.saver.saving() if self.saver is not None else nullcontext(),
        ):
            set_learning_rate(self.stepper.optimizer, self.schedule.rate(state.step))
            # A checkpoint of a ctrl-C right before a round leaves that round to us.
            missing = state.step > state.round_step and plan.round_due(state.step)
            over = self._round() if missing else self._over()
            while not over:
                over = self._epoch(interrupt)
        self.progress.end()
        if not state.best and self._first:
            log.warning(
                "No evaluation gave a finite %s, so the model is the last step's.", self.monitor
            )
        with self.callbacks.evaluating():
            last = self._weights()
        return Finished(self.best_weights or last, last, state, self.stopped)

    def _epoch(self, interrupt: Interrupt) -> bool:
        """Steps from where we stand to the end of the epoch; True: training is over."""
        plan, state, stepper, progress = self.work.plan, self.state, self.stepper, self.progress
        begun, first, after_step = state.step, state.step_in_epoch, self.callbacks.after_step
        batches = self.beat.each(
            iter(self.work.train.batches(state.epoch, first)), LOADING, COMPUTING
        )
        for offset, batch in enumerate(batches):
            rows = plan.rows_of(first + offset)
            asked = stepper.step(batch, rows, state.step, bool(interrupt.asked or progress.stop))
            state.rows += rows
            state.advance(plan.steps_per_epoch)
            for call in after_step:
                call(state.step)
            self.sentinel.stepped(state.step)
            if self.saver is not None:
                self.saver.look()
            self.beat.stepped()
            progress.done = state.step
            progress.loss = stepper.last_loss
            if asked:
                self._stop(interrupt)
            if plan.round_due(state.step) and self._round():
                return True
            if not self.schedule.constant:
                set_learning_rate(stepper.optimizer, self.schedule.rate(state.step))
        if state.step_in_epoch or state.step == begun:
            raise TrainingError(
                f"The loader ended after {state.step_in_epoch} of {plan.steps_per_epoch} batches "
                f"of epoch {state.epoch}. Report this to the loader's authors."
            )
        if state.round_step != state.step and not self.options.ledger_steps:
            self.sentinel.look(state.step)
        return False

    def _over(self) -> bool:
        patience = self.options.early_stop
        return (
            self.state.step >= self.work.plan.total_steps
            or 0 < patience <= self.state.rounds_without_improvement
        )

    def _round(self) -> bool:
        """Evaluate, remember the best where there are validation rows, save a checkpoint; True:
        training is over."""
        state, work = self.state, self.work
        self.sentinel.look(state.step)
        self.stepper.check_parameters()
        if self._unsaved is not None:
            self._unsaved.look()
        self._check_finite()
        state.round_step = state.step
        epoch = state.step / work.plan.steps_per_epoch
        label = {
            "epoch": epoch,
            "step": state.step,
            "metric": self.monitor.metric,
            "feature": self.monitor.field,
        }
        with self.callbacks.evaluating():
            scores = self._scores()
            if work.validation is None:
                state.keep(self.monitor.value(scores), label)
                self.best_weights = {}
            elif state.judge(self.monitor.value(scores), self.monitor.higher, label):
                self.best_weights = {}  # before others are copied beside them
                self.best_weights = self._weights() if self._first else {}
        for split, found in scores.items():
            state.record(split, found)
        watched = self.monitor.plateau_value(scores)
        if watched is not None and self.plateau.observe(watched):
            self.schedule.reductions += 1
            set_learning_rate(self.stepper.optimizer, self.schedule.rate(state.step))
        state.rows = 0
        self.stepper.sums.zero_()
        if self._first:  # before the checkpoint, with which the round counts as told
            self.progress.tell(
                round_of(
                    work.plan, self.options.early_stop, self.monitor, state, scores, self.progress
                )
            )
        self.save(ending=self._over())
        self._stragglers.look(self.strategy, self.beat)
        told = work.on_round if self._first else None
        why = told and told(math.ceil(epoch), state.step, scores)
        return self._over() or self._stopped_by(self.strategy.gather(why)[0])

    def _stopped_by(self, why: str | None) -> bool:
        """After an evaluation: whether an extension asked to end here, for this reason."""
        self.stopped = why or ""
        if self.stopped and self._first:
            home, total = self.work.home, self.work.plan.total_steps
            way = f" Go on from there with --model_resume_path {home}" if home else ""
            where = f"Training ends after step {self.state.step} of {total}."
            log.warning("%s %s%s", self.stopped, where, way)
        return bool(self.stopped)

    def _stop(self, interrupt: Interrupt) -> None:
        """After a signal in some rank: save where we are and say how to go on."""
        self._check_finite()
        self.save(ending=True)
        if self.saver is not None:
            self.saver.wait()
        home = self.work.home
        where = f"Stopped after step {self.state.step}."
        if not self._first:
            raise interrupt.stopped()
        if isinstance(self.progress.stop, str):
            log.info("%s %s", where, self.progress.stop)
        elif home is None:
            log.warning("%s No checkpoints are kept, so this run cannot be resumed.", where)
        else:
            log.warning("%s Go on from there with --model_resume_path %s", where, home)
        raise interrupt.stopped()

    def _last_words(self) -> str:
        """For a signal that does not wait for a checkpoint of this step."""
        kept = self.work.checkpoints
        found = checkpoint.list_checkpoints(kept) if kept is not None else []
        if kept is None or not found:
            return "No checkpoint was saved." if self._first else ""
        return how_to_go_on(self.work.place(found[0]), self.work.home)

    # -------------------------------------------------------------- evaluation

    def _scores(self) -> JSON:
        """{split: {output feature: {metric: value}}} of this round; the same in every rank."""
        self.progress.note = "evaluating"
        scores = self.rounds.scores(self.state, self._since())
        self.progress.note = ""
        return scores

    def _check_finite(self) -> None:
        """Raise Diverged, in every rank, where the weights or the optimizer's state of one are
        not finite."""
        self.watch.check(self._since(), self.state.step, self.stepper.sums.sum(0).tolist())

    def _since(self) -> int:
        """The step of the last round, or of the one before where this is the step of one."""
        state = self.state
        return (
            state.round_step
            if state.round_step < state.step
            else max(0, state.step - self.work.plan.steps_per_round)
        )

    # -------------------------------------------------------------- weights and checkpoints

    def _weights(self) -> Weights:
        """The module's; copied, unless training is over and nobody will change them."""
        tensors = {name: each.detach() for name, each in self.work.module.state_dict().items()}
        if self._over() and not self.callbacks.evaluates:
            return tensors
        return {name: each.clone() for name, each in tensors.items()}

    def save(self, ending: bool = False) -> None:
        """Save a checkpoint from rank 0, beside training, if any are kept.

        ending: no step will change what is saved, so nothing of it is copied."""
        work, state = self.work, self.state
        if work.checkpoints is None:
            return
        self.sentinel.look(state.step, saving=True)
        sums = self.rounds.sums()
        if self.saver is None:
            return
        optimizer, tensors = optimizer_state(self.stepper.optimizer, copy=False)
        scaler = self.stepper.losses.scaler
        saved = {
            "identity": work.identity,
            "train": state.as_json(),
            "sums": sums,
            "optimizer": optimizer,
            "plateau": self.plateau.state(),
            "learning_rate": self.schedule.shape.base,
            "scaler": scaler.state_dict() if scaler is not None else None,
            "best_is_last": not self.callbacks.evaluates
            and state.best.get("step") == state.step == state.round_step,
        }
        named = {f"optimizer/{name}": each for name, each in tensors.items()}
        named |= {f"weights/{name}": each for name, each in work.module.state_dict().items()}
        named |= {f"callbacks/{name}": each for name, each in self.callbacks.state().items()}
        best = {} if saved["best_is_last"] else self.best_weights
        kept = {f"best/{name}": each for name, each in best.items()}
        changing, kept = ({}, named | kept) if ending else (named, kept)
        self.saver.save(state.step, changing, kept, saved)

    def resume(self, directory: Path) -> None:
        """Go on from the newest whole checkpoint of a folder, which rank 0 reads for all.

        Raises CheckpointError if none is whole, or it is of another run."""
        told = self.strategy.gather(self._attempt(directory) if self._first else None)[0]
        if isinstance(told, CheckpointError):
            raise told
        found = checkpoint.Checkpoint(*told)
        saved = found.state
        self.state = state = TrainState.from_json(saved["train"])
        parts: dict[str, Weights] = {"weights": {}, "best": {}, "optimizer": {}, "callbacks": {}}
        for name, tensor in found.tensors.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = tensor
        load_weights(self.work.module, parts["weights"], found.path)
        self.strategy.prepare(self.work.module)
        load_optimizer_state(self.stepper.optimizer, saved["optimizer"], parts["optimizer"])
        self.callbacks.load_state(parts["callbacks"])
        self.plateau.restore(saved["plateau"])
        self.schedule = self.schedule.as_begun(saved.get("learning_rate"))
        self.schedule.reductions = self.plateau.reductions
        scaler = self.stepper.losses.scaler
        if scaler is not None and saved["scaler"] is not None:
            scaler.load_state_dict(saved["scaler"])
        self.best_weights = (
            parts["weights" if saved["best_is_last"] else "best"] if self._first else {}
        )
        self.stepper.gradients.settle()
        self.rounds.take_sums(saved["sums"])
        log.info("Going on after step %d (%s).", state.step, self.work.place(found.path))

    def _attempt(self, directory: Path) -> tuple[Any, ...] | CheckpointError:
        """A checkpoint's fields, or why there is none, so that every rank can raise the same."""
        try:
            with checkpoint.told_as_there(self.work.mirror, directory.parent):
                found = checkpoint.load_newest(directory, self.watch.flaw)
                check_identity(found.state["identity"], self.work.identity, found.path)
        except CheckpointError as error:
            return error
        return found.path, found.step, found.tensors, found.state
