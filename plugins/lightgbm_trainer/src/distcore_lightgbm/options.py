"""Options of `backend: {trainer: {type: lightgbm, …}}`, by LightGBM's own names."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class LightGBMOptions(BaseModel):
    """One model is boosted for each output feature, all with these options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_boost_round: int = Field(
        200, ge=1, description="Trees (for each class, if there are several)."
    )
    learning_rate: float = Field(0.05, gt=0, description="Shrinkage of each tree.")
    num_leaves: int = Field(31, ge=2, description="Leaves of a tree.")
    min_data_in_leaf: int = Field(20, ge=1, description="Rows of a leaf.")
    feature_fraction: float = Field(
        1.0, gt=0, le=1, description="Share of the columns that a tree sees."
    )
    lambda_l2: float = Field(0.0, ge=0, description="L2 penalty on leaf values.")
    early_stopping_rounds: int = Field(
        20,
        ge=0,
        description="Stop after so many trees without improvement on the validation split; 0: "
        "never.",
    )
    num_threads: int = Field(0, ge=0, description="Threads; 0: one a CPU.")
