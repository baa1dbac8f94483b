"""The section `trainer.learning_rate_scheduler`: Ludwig's names and defaults; nothing here imports
torch.

`decay` names a member of the role `schedules`; its options stand beside it, as in Ludwig.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from distcore_data.base_options import Count, Fraction, NonNegative, Options, Whole


class Scheduling(Options):
    """What is there with every decay: warm-up before it, reductions on a plateau on top of both."""

    ludwig_only: ClassVar[Mapping[str, Any]] = {
        "max_lr": None,
        "pct_start": 0.3,
        "div_factor": 25.0,
        "final_div_factor": 1e4,
        "inverse_sqrt_warmup_steps": 4000,
        "polynomial_power": 1.0,
        "polynomial_end_lr": 0.0,
        "wsd_warmup_fraction": 0.1,
        "wsd_stable_fraction": 0.8,
        "wsd_decay_fraction": 0.1,
    }
    read_with: ClassVar[Mapping[str, str]] = dict.fromkeys(ludwig_only, "decay")

    reduce_on_plateau: Whole = Field(
        0, description="How often the learning rate may be reduced on a plateau."
    )
    reduce_on_plateau_patience: Whole = Field(
        10, description="Evaluations without improvement before a reduction."
    )
    reduce_on_plateau_rate: Fraction = Field(0.1, description="Factor of a reduction.")
    reduce_eval_metric: str = Field(
        "loss",
        description="Metric that is watched for a plateau: of the output whose metric picks the "
        "best round; where that has none such, of the first output that has it.",
    )
    reduce_eval_split: Literal["training", "train", "validation", "test"] = Field(
        "training", description="Split whose metric is watched."
    )
    warmup_evaluations: NonNegative = Field(0, description="Evaluation rounds of linear warm-up.")
    warmup_fraction: Fraction = Field(
        0.0,
        description="Fraction of all steps of linear warm-up; the longer of the two counts.",
    )


class Linear(Options):
    """To 0 at the end of training; no options."""


class Exponential(Options):
    """By decay_rate every decay_steps."""

    decay_rate: Fraction = Field(0.96, description="Factor of the exponential decay.")
    decay_steps: Count = Field(
        10_000, description="Steps in which the exponential decay multiplies by decay_rate."
    )
    staircase: bool = Field(
        False, description="Exponential decay in jumps every decay_steps, not smoothly."
    )


class Cosine(Options):
    """Annealing with warm restarts every t_0 steps."""

    t_0: Count | None = Field(
        None, description="Steps before the first cosine restart; default: a checkpoint's."
    )
    t_mult: Count = Field(1, description="Each cosine period is this many times the one before.")
    eta_min: Fraction = Field(0.0, description="Smallest learning rate of the cosine decay.")


DECAYS: Mapping[str, type[BaseModel]] = {
    "linear": Linear,
    "exponential": Exponential,
    "cosine": Cosine,
}
"""Of the toolkit's own schedules."""


class Decay(Options):
    """Which of the toolkit's own schedules it is."""

    decay: Literal["linear", "exponential", "cosine"] | None = Field(
        None, description="linear: to 0 at the end of training; exponential: by decay_rate every "
            "decay_steps; cosine: annealing with warm restarts every t_0 steps.",
    )  # fmt: skip

    @field_validator("decay", mode="before")
    @classmethod
    def _known_to_ludwig(cls, value: Any) -> Any:
        if value in ("one_cycle", "inverse_sqrt", "polynomial", "wsd"):
            raise ValueError(
                f"{value!r} is known in Ludwig, but not carried out here; what is: linear, "
                "exponential, cosine"
            )
        return value


class LearningRateScheduler(Scheduling, Cosine, Exponential, Linear, Decay):
    """How the learning rate changes over the run: warm-up, then decay; reductions on a plateau
    on top of both."""
