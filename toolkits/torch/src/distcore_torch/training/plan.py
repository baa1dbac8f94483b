"""How long a run is and how it is cut: rows of a step, steps of an epoch and of a round,
learning rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distcore_core.errors import ConfigError, ConfigIssue
from distcore_torch.train_options import AUTO_BATCH_SIZE, auto_batch_size
from distcore_torch.training.schedule import scaled

if TYPE_CHECKING:
    from distcore_torch.train_options import TrainerOptions


@dataclass(frozen=True)
class TrainPlan:
    """A step is one update of the weights by one global batch.

    rows: of the training split. batch_rows: of a global batch (all workers, all accumulated
    passes); the last of an epoch may be shorter. micro_rows: most rows of one forward pass.
    evaluation_rows: of an evaluation batch over all workers. steps_per_round: between two
        evaluations. learning_rate: scaled by the workers.
    """

    workers: int
    rows: int
    micro_rows: int
    accumulation: int
    batch_rows: int
    evaluation_rows: int
    steps_per_epoch: int
    total_steps: int
    steps_per_round: int
    learning_rate: float

    @classmethod
    def of(cls, options: TrainerOptions, workers: int, rows: int) -> TrainPlan:
        """Raises ConfigError if batch sizes, or the parts of exact training, cannot be shared by
        the workers."""
        refuse_without_parts(options, workers)
        try:
            sizes = _for_rows(options, rows).batch_sizes(1 if options.exact else workers)
        except ValueError as error:
            raise ConfigError(
                [ConfigIssue(0, "trainer.effective_batch_size", str(error))]
            ) from error
        if (
            options.exact
        ):  # the run is the same for any number of workers, so it is planned as for one
            batch_rows = sizes.per_worker * sizes.accumulation
            scale, evaluation = 1, sizes.evaluation * options.parts
        else:
            batch_rows = sizes.per_worker * sizes.accumulation * workers
            scale, evaluation = workers, sizes.evaluation * workers
        per_epoch = max(1, -(-rows // batch_rows))
        total = options.train_steps or options.epochs * per_epoch
        per_round = options.steps_per_checkpoint or max(
            1, per_epoch // max(1, options.checkpoints_per_epoch)
        )
        return cls(
            workers,
            rows,
            sizes.per_worker,
            sizes.accumulation,
            batch_rows,
            evaluation,
            per_epoch,
            total,
            min(per_round, total),
            scaled(options.base_learning_rate, options.learning_rate_scaling, scale),
        )

    def rows_of(self, step_in_epoch: int) -> int:
        """Rows of a global batch: of the last one of an epoch those that are left (see
        `sampler.Lanes.batch_rows`)."""
        return max(0, min(self.batch_rows, self.rows - step_in_epoch * self.batch_rows))

    def round_due(self, step: int) -> bool:
        """Whether an evaluation round follows this many steps."""
        return step % self.steps_per_round == 0 or step >= self.total_steps


def ludwigs_otherwise(plan: TrainPlan, options: TrainerOptions) -> list[str]:
    """What options of the length of rounds, or counted in steps, mean here and not in Ludwig."""
    found = []
    if plan.steps_per_round > plan.steps_per_epoch:
        found.append(
            f"trainer.steps_per_checkpoint {options.steps_per_checkpoint} is more than the steps "
            f"of an epoch ({plan.steps_per_epoch:,}): evaluations, and with them early_stop, come "
            f"every {plan.steps_per_round / plan.steps_per_epoch:,.1f} epochs. Ludwig has them "
            "after each: leave it out for that"
        )
    scheduler = options.learning_rate_scheduler
    counted = {
        "train_steps": options.train_steps,
        "steps_per_checkpoint": options.steps_per_checkpoint,
        "learning_rate_scheduler.decay_steps": scheduler.decay == "exponential",
        "learning_rate_scheduler.t_0": scheduler.decay == "cosine" and scheduler.t_0,
    }
    if plan.accumulation > 1 and any(counted.values()):
        named = [f"trainer.{name}" for name, given in counted.items() if given]
        cause = "gradient_accumulation_steps"
        if options.gradient_accumulation_steps == "auto":
            cause = "effective_batch_size"
        found.append(
            f"{' and '.join(named)} count{'s' if len(named) == 1 else ''} updates of the weights, "
            f"each of {plan.accumulation} batches ({cause}); Ludwig counts batches"
        )
    return found


def refuse_without_parts(options: TrainerOptions, workers: int) -> None:
    """Raise ConfigError if exact training has fewer parts than workers.

    Args:
        options: Of the `trainer` section.
        workers: Ranks.
    """
    if options.exact and workers > options.parts:
        need = 1 << (workers - 1).bit_length()
        message = (
            f"{options.parts} parts cannot be shared by {workers} workers; set it to {need}, "
            "which is another run, or use fewer workers"
        )
        raise ConfigError([ConfigIssue(0, "trainer.parts", message)])


def _for_rows(options: TrainerOptions, rows: int) -> TrainerOptions:
    """The same for so many training rows: `batch_size: auto` is a number."""
    if options.batch_size != "auto" or options.effective_batch_size != "auto":
        return options
    size = min(auto_batch_size(rows), options.max_batch_size or AUTO_BATCH_SIZE)
    return options.model_copy(update={"batch_size": size})
