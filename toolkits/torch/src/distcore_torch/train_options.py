"""The `trainer` section: Ludwig's names and defaults, validated; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from distcore_core.registry.manager import Plugins
from distcore_data.base_options import (
    Count,
    Fraction,
    NonNegative,
    Options,
    Whole,
)
from distcore_data.members import with_member_list, with_members
from distcore_torch.optimizer_options import MODELS, Adam, Optimizer
from distcore_torch.roles import CALLBACK, OPTIMIZER, SCHEDULE
from distcore_torch.schedule_options import DECAYS, LearningRateScheduler, Scheduling

AUTO_BATCH_SIZE = 128
"""The most that `batch_size: auto` is."""

FEWEST_AUTO = 8
"""The fewest that it is."""

AUTO_STEPS = 30
"""Steps an epoch that `batch_size: auto` leaves a few rows, so that they move the weights at
all."""


def auto_batch_size(rows: int) -> int:
    """What `batch_size: auto` is: by the rows alone, so that one config makes the same batches on
    every machine.

    Args:
        rows: of the training split.

    Returns:
        Rows of a batch, a power of two.
    """
    wanted = max(FEWEST_AUTO, min(AUTO_BATCH_SIZE, rows // AUTO_STEPS))
    return 1 << (wanted.bit_length() - 1)


AUTO_LEARNING_RATE = 0.001
"""What `learning_rate: auto` is; Ludwig's default too."""


# ------------------------------------------------------------------ gradients


class GradientClipping(Options):
    """Bounds on the gradients; `gradient_clipping: null` turns all off."""

    clipglobalnorm: NonNegative | None = Field(
        0.5, description="Largest norm of all gradients together."
    )
    clipnorm: NonNegative | None = Field(
        None,
        description="A second bound of the norm of all gradients together, as in Ludwig's code.",
    )
    clipvalue: NonNegative | None = Field(None, description="Largest absolute value in a gradient.")


class BatchSizes(NamedTuple):
    """Rows. per_worker: of one forward pass in one worker; accumulation: passes before a step;
    evaluation: per worker.

    One optimizer step sees per_worker × accumulation × workers rows."""

    per_worker: int
    accumulation: int
    evaluation: int


# ------------------------------------------------------------------ the section


CountOrAuto = Count | Literal["auto"]

_PLATEAU = {
    "increase_batch_size_on_plateau_patience": 5,
    "increase_batch_size_on_plateau_rate": 2.0,
    "increase_batch_size_eval_metric": "loss",
    "increase_batch_size_eval_split": "training",
}
_BALANCING = {
    "loss_balancing_alpha": 1.5,
    "loss_balancing_lr": 0.01,
    "loss_balancing_preference_vector": None,
    "loss_balancing_tchebycheff_weight": 0.5,
}
_PRETRAINING = {
    "contrastive_pretrain_temperature": 0.07,
    "contrastive_pretrain_projection_dim": 128,
    "contrastive_pretrain_learnable_temperature": True,
}


class TrainerOptions(Options):
    """The `trainer` section."""

    ludwig_only: ClassVar[Mapping[str, Any]] = {
        "skip_all_evaluation": False,
        "eval_steps": None,
        "enable_profiling": False,
        "increase_batch_size_on_plateau": 0,
        "bucketing_field": None,
        "enable_gradient_checkpointing": False,
        "layers_to_freeze_regex": None,
        "loss_balancing": "none",
        "modality_dropout": 0.0,
        "model_soup": None,
        "model_soup_top_k": 5,
        "contrastive_pretrain_epochs": 0,
        **_PLATEAU,
        **_BALANCING,
        **_PRETRAINING,
    }
    read_with: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(_PLATEAU, "increase_batch_size_on_plateau"),
        **dict.fromkeys(_BALANCING, "loss_balancing"),
        **dict.fromkeys(_PRETRAINING, "contrastive_pretrain_epochs"),
        "model_soup_top_k": "model_soup",
    }

    epochs: Count = Field(
        100, description="Passes over the training split; train_steps overrides it."
    )
    train_steps: Count | None = Field(None, description="Optimizer steps to train for.")
    batch_size: CountOrAuto = Field(
        "auto",
        description=f"Rows of a batch, per worker; auto: 1/{AUTO_STEPS} of the training rows as a "
        f"power of two from {FEWEST_AUTO} to {AUTO_BATCH_SIZE}, or what "
        "effective_batch_size and gradient_accumulation_steps leave.",
    )
    effective_batch_size: CountOrAuto = Field(
        "auto",
        description="Rows of one optimizer step: batch_size × gradient_accumulation_steps × "
        "workers.",
    )
    gradient_accumulation_steps: CountOrAuto = Field(
        "auto", description="Batches whose gradients make one step."
    )
    max_batch_size: Count | None = Field(1 << 40, description="Upper bound of batch_size: auto.")
    eval_batch_size: CountOrAuto | None = Field(
        None,
        description="Rows of an evaluation batch; default: batch_size, and after training, where "
        "the test split and the report's scores are computed, 4096.",
    )
    optimizer: Optimizer = Field(
        Adam.model_construct(), description="Type and options of the optimizer."
    )
    learning_rate: NonNegative | Literal["auto"] = Field(
        0.001, description=f"Step size; auto: {AUTO_LEARNING_RATE}, never searched for."
    )
    learning_rate_scheduler: LearningRateScheduler = Field(
        LearningRateScheduler.model_construct(), description="Warm-up, decay and plateau."
    )
    learning_rate_scaling: Literal["constant", "sqrt", "linear"] = Field(
        "linear",
        description="How the learning rate grows with the number of workers. A run that goes on "
        "with another number keeps the rate that it was begun with.",
    )
    gradient_clipping: GradientClipping | None = Field(
        GradientClipping.model_construct(), description="Bounds on the gradients."
    )
    use_mixed_precision: bool | Literal["bf16", "fp16"] = Field(
        False,
        description="true and bf16: bfloat16 autocast; fp16: float16 with a gradient scaler, meant "
        "for GPUs.",
    )
    regularization_lambda: Fraction = Field(
        0.0, description="Strength of the penalty on the weights."
    )
    regularization_type: Literal["l1", "l2", "l1_l2"] | None = Field(
        "l2", description="Kind of the penalty."
    )
    should_shuffle: bool = Field(
        True, description="Shuffle the training split, another way each epoch."
    )
    early_stop: Annotated[int, Field(ge=-1)] = Field(
        5,
        description="Evaluations without improvement before training stops; -1 or 0, or without "
        "validation rows: never.",
    )
    validation_field: str | None = Field(
        None,
        description="Output feature whose metric decides, or `combined`: the summed loss; default: "
        "the first that has validation_metric, or `combined` if that is loss.",
    )
    validation_metric: str | None = Field(
        None,
        description="Metric that decides; default: the feature's own. Without validation rows "
        "none does, and the last weights are kept.",
    )
    steps_per_checkpoint: Whole = Field(
        0,
        description="Steps between checkpoints and evaluations, also more than an epoch's; 0: an "
        "epoch's.",
    )
    checkpoints_per_epoch: Whole = Field(
        0, description="Checkpoints and evaluations an epoch; 0: one."
    )
    evaluate_training_set: bool = Field(
        False, description="Evaluate the whole training split too, in its own pass."
    )
    callbacks: tuple[Any, ...] = Field(
        (),
        description="What else changes how the weights are trained or evaluated: a list of names, "
        "or of sections with type and options, of callbacks that plugins offer.",
    )
    compile: bool = Field(False, description="torch.compile the model.")
    replay: bool = Field(
        True,
        description="On one GPU, launch the kernels of a step together (a CUDA graph) where the "
        "model says that they are always the same, and nothing else changes the weights. The bits "
        "are the same.",
    )
    exact: bool = Field(
        False,
        description="The same bits of weights, optimizer state and statistics for every number of "
        "workers, threads and every backend: a batch is computed in `parts`. batch_size, "
        "gradient_accumulation_steps and learning_rate are then those of the run, whatever "
        "the number of workers. On CPUs.",
    )
    parts: Count = Field(
        8,
        description="With exact: into how many parts a global batch is cut, a power of two; at "
        "most so many workers. Another number gives other bits.",
    )
    ledger_steps: Whole = Field(
        10,
        description="Steps between two entries of ledger.jsonl, the fingerprints of the weights. "
        "Workers compare their weights and optimizer state as often, and stop at a "
        "difference. 0: no ledger, and workers are compared at evaluations alone.",
    )
    grace_seconds: NonNegative = Field(
        30.0,
        description="Seconds to save a checkpoint in after SIGTERM, before the process ends "
        "without it.",
    )

    hang_seconds: Annotated[float, Field(ge=1)] | None = Field(
        None,
        description="A worker without progress for so long is ended and named; training goes on "
        "from the checkpoint, or ends after max_retries. Longer than the longest step, "
        "evaluation batch and checkpoint; no less than 60 s count while it starts, prepares or "
        "tells extensions. null: it is named after 20 s, and waited for. The trainer `local` is "
        "one process, which watches itself: the command ends with exit code 1 and names the last "
        "checkpoint; a Python program that called distcore is told, and not ended, and a process "
        "that is stopped as a whole tells nothing.",
    )

    @field_validator("learning_rate_scheduler", mode="before")
    @classmethod
    def _null_scheduler(cls, value: Any) -> Any:
        return {} if value is None else value

    @field_validator("eval_batch_size", mode="before")
    @classmethod
    def _zero_eval_batch_size(cls, value: Any) -> Any:
        """Ludwig's older spelling of `null`."""
        return None if value == 0 and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _fit_together(self) -> TrainerOptions:
        effective, accumulation = self.effective_batch_size, self.gradient_accumulation_steps
        if self.steps_per_checkpoint and self.checkpoints_per_epoch:
            raise ValueError(
                "steps_per_checkpoint and checkpoints_per_epoch are both set; keep one of them"
            )
        if self.parts & (self.parts - 1):
            raise ValueError(f"parts {self.parts} must be a power of two (1, 2, 4, 8, …)")
        if self.exact and self.compile:
            raise ValueError(
                "exact and compile are both true, but a compiled model may add in another order "
                "for another number of rows; keep one of them"
            )
        if self.optimizer.type == "lbfgs" and self.precision == "fp16":
            raise ValueError(
                "optimizer lbfgs and use_mixed_precision fp16 do not go together: losses of "
                "float16 are scaled, and steps whose gradients overflow are left out, which a line "
                "search cannot do; use bf16, or choose another optimizer"
            )
        if effective == "auto":
            return self
        for name, part in (
            ("batch_size", self.batch_size),
            ("gradient_accumulation_steps", accumulation),
        ):
            if part != "auto" and effective % part:
                raise ValueError(
                    f"effective_batch_size {effective} must be a multiple of {name} {part}; change "
                    "one of them"
                )
        if self.max_batch_size is not None and effective > self.max_batch_size:
            raise ValueError(
                f"effective_batch_size {effective} is above max_batch_size {self.max_batch_size}; "
                "change one"
            )
        if (
            self.batch_size != "auto"
            and accumulation != "auto"
            and effective % (self.batch_size * accumulation)
        ):
            raise ValueError(
                f"effective_batch_size {effective} must be a multiple of batch_size × "
                f"gradient_accumulation_steps ({self.batch_size * accumulation}); change one of "
                "them"
            )
        return self

    @property
    def base_learning_rate(self) -> float:
        """`learning_rate`, with what auto stands for."""
        return AUTO_LEARNING_RATE if self.learning_rate == "auto" else self.learning_rate

    @property
    def precision(self) -> Literal["fp32", "bf16", "fp16"]:
        """The type that autocast computes in; fp32 is no autocast."""
        if isinstance(self.use_mixed_precision, bool):
            return "bf16" if self.use_mixed_precision else "fp32"
        return self.use_mixed_precision

    def batch_sizes(self, workers: int) -> BatchSizes:
        """Batch sizes for a number of workers, by Ludwig's rules; auto is the most that it can be.

        Raises ValueError if effective_batch_size cannot be shared out evenly over the workers, or
        is another than the other two make, which Ludwig goes by without a word."""
        per_worker, accumulation, effective = (
            self.batch_size,
            self.gradient_accumulation_steps,
            self.effective_batch_size,
        )
        if effective != "auto":
            if effective % workers:
                raise ValueError(
                    f"effective_batch_size {effective} cannot be shared evenly by {workers} "
                    "workers; make it a multiple of the number of workers"
                )
            share = effective // workers
            leaves = (
                f"effective_batch_size {effective} on {workers} workers leaves {share} rows each"
            )
            if self.exact:
                leaves = f"an exact step has effective_batch_size {share} rows over all workers"
            if per_worker == "auto":
                passes = accumulation if accumulation != "auto" else 1
                if share % passes:
                    raise ValueError(
                        f"{leaves}, which gradient_accumulation_steps {passes} does not divide; "
                        "change one of them"
                    )
                per_worker, accumulation = share // passes, passes
            elif accumulation == "auto":
                if share % per_worker:
                    raise ValueError(
                        f"{leaves}, which batch_size {per_worker} does not divide; change one of "
                        "them"
                    )
                accumulation = share // per_worker
            elif share != per_worker * accumulation:
                raise ValueError(
                    f"{leaves}, and not batch_size {per_worker} × gradient_accumulation_steps "
                    f"{accumulation}; leave one of the three out"
                )
        rows = (
            min(AUTO_BATCH_SIZE, self.max_batch_size or AUTO_BATCH_SIZE)
            if per_worker == "auto"
            else per_worker
        )
        evaluation = self.eval_batch_size if isinstance(self.eval_batch_size, int) else rows
        return BatchSizes(rows, 1 if accumulation == "auto" else accumulation, evaluation)


def options_model(given: Any, plugins: Plugins) -> type[TrainerOptions]:
    """The section's model, with the optimizer, the schedule and the callbacks from outside that the
    config names."""
    model = with_members(
        TrainerOptions, "optimizer", given, OPTIMIZER, plugins, builtin=MODELS, shared=Options
    )
    section = "learning_rate_scheduler"
    model = with_members(
        model, section, given, SCHEDULE, plugins, builtin=DECAYS, shared=Scheduling, tag="decay"
    )
    return with_member_list(model, "callbacks", given, CALLBACK, plugins, shared=Options)
