"""Options of `backend: {trainer: {type: xgboost, …}}`, by XGBoost's own names."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from distcore_trees import TreeOptions


class XGBoostOptions(TreeOptions):
    """Those of every trainer of trees, and XGBoost's."""

    learning_rate: float = Field(0.1, gt=0, description="Shrinkage of each tree.")
    max_depth: int = Field(6, ge=1, le=2**31 - 1, description="Levels of splits of a tree.")
    min_child_weight: float = Field(
        1.0, ge=0, description="Least sum of second derivatives of a leaf: rows, for a number."
    )
    subsample: float = Field(1.0, gt=0, le=1, description="Share of the rows that a tree sees.")
    colsample_bytree: float = Field(
        1.0, gt=0, le=1, description="Share of the columns that a tree sees."
    )
    reg_lambda: float = Field(1.0, ge=0, description="L2 penalty on leaf values.")
    reg_alpha: float = Field(0.0, ge=0, description="L1 penalty on leaf values.")
    max_bin: int = Field(256, ge=2, le=2**31 - 1, description="Bins of a column of numbers.")
    device: Literal["cpu", "cuda"] = Field(
        "cpu",
        description="Where trees are boosted; cuda needs the distribution xgboost in place of "
        "xgboost-cpu, and was not tried by us.",
    )
