"""Degrees as sine and cosine, so that 359° and 1° are neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from distcore_core.plugin import JSON, Column, DataError, FeatureBase

if TYPE_CHECKING:
    import torch


class AngleOptions(BaseModel):
    """Of a feature of type angle."""

    model_config = ConfigDict(extra="forbid")
    offset: float = Field(0.0, description="Degrees that are added to every value.")


class Angle(FeatureBase):
    """Two float32 words a row. What is missing becomes the origin, which no angle is."""

    raw = "number"
    missing = "fill_with_const"

    def __init__(self, name: str, options: AngleOptions) -> None:
        self.name, self.options = name, options

    def partial(self, values: pa.Array) -> int:
        """How many values are there."""
        return len(values) - values.null_count

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> JSON:
        """Raises DataError for a column without any value."""
        if not state:
            raise DataError(f"Column {self.name!r} has no value in any row. Remove the feature.")
        return {"values": state}

    def column(self, metadata: JSON) -> Column:
        return Column(name=self.name, dtype="float32", width=2)

    def encode(self, values: pa.Array, metadata: JSON) -> pa.Array:
        """Sine and cosine: FixedSizeList<float32>[2] of n. Raises DataError for no finite value."""
        degrees = values.fill_null(0.0).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(~np.isfinite(degrees))
        if len(wrong):
            raise DataError(f"Column {self.name!r}: {degrees[wrong[0]]} is no angle.")
        turned = np.radians(np.remainder(degrees + self.options.offset, 360.0))
        pair = np.stack([np.sin(turned), np.cos(turned)], 1)
        pair[values.is_null().to_numpy(zero_copy_only=False)] = 0.0
        return pa.FixedSizeListArray.from_arrays(pa.array(pair.astype(np.float32).ravel()), 2)

    def network(self) -> Any:
        """The half that needs torch."""
        return AngleNetwork()


class AngleNetwork:
    """An input alone."""

    def encoder(self, metadata: JSON) -> torch.nn.Module:
        """As it is: [B, 2]."""
        import torch

        encoder: Any = torch.nn.Identity()
        encoder.output_size = 2
        found: torch.nn.Module = encoder
        return found
