"""Options that trainers of boosted trees share."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TreeOptions(BaseModel):
    """One forest is boosted for each output feature, all with these options.

    A library's own are added by its plugin, under the library's names."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_boost_round: int = Field(
        200, ge=1, description="Rounds: a tree each (for each class, if there are several)."
    )
    early_stopping_rounds: int = Field(
        20,
        ge=0,
        description="Stop after so many rounds without improvement on the validation split; 0: "
        "never. In either case the model ends with the best round.",
    )
    trees_per_evaluation: int | None = Field(
        None,
        ge=1,
        description="Rounds between two evaluations, each of which is a line of progress with "
        "every metric, and a checkpoint; null: a twentieth of num_boost_round.",
    )
    num_threads: int = Field(0, ge=0, le=2**31 - 1, description="Threads; 0: one a CPU.")

    @property
    def period(self) -> int:
        """Rounds between two evaluations."""
        return self.trees_per_evaluation or max(1, self.num_boost_round // 20)


HOW_FAST = ("num_threads",)
"""Options that only say how fast it trains."""

HOW_LONG = ("num_boost_round", "early_stopping_rounds")
"""Options with which a run may go on otherwise than it began; but not a search."""
