"""Options of `backend: {trainer: {type: lightgbm, …}}`, by LightGBM's own names."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from distcore_trees import TreeOptions


class LightGBMOptions(TreeOptions):
    """Those of every trainer of trees, and LightGBM's."""

    learning_rate: float = Field(0.05, gt=0, description="Shrinkage of each tree.")
    num_leaves: int = Field(31, ge=2, le=131_072, description="Leaves of a tree.")
    min_data_in_leaf: int = Field(20, ge=1, le=2**31 - 1, description="Rows of a leaf.")
    feature_fraction: float = Field(
        1.0, gt=0, le=1, description="Share of the columns that a tree sees."
    )
    lambda_l2: float = Field(0.0, ge=0, description="L2 penalty on leaf values.")
    device_type: Literal["cpu", "gpu", "cuda"] = Field(
        "cpu",
        description="Where trees are boosted: gpu is OpenCL, which LightGBM's wheels have for "
        "Linux and Windows; cuda needs LightGBM built for it. Neither was tried by us.",
    )
