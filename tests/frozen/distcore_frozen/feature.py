"""An angle in degrees as its sine and cosine; missing ones are 0 degrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from distcore_core.plugin import JSON, Column, FeatureBase


class Angle(FeatureBase):
    """A `Feature` for inputs."""

    raw = "number"
    missing = "fill_with_const"

    def __init__(self, name: str, options: Any) -> None:
        self.name, self.options = name, options

    def partial(self, values: pa.Array) -> int:
        return len(values) - values.null_count

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> JSON:
        return {"known": state}

    def column(self, metadata: JSON) -> Column:
        return Column(name=self.name, dtype="float32", width=2)

    def encode(self, values: pa.Array, metadata: JSON) -> pa.Array:
        degrees = values.fill_null(0.0).to_numpy(zero_copy_only=False) + self.options.offset
        pair = np.stack([np.sin(np.radians(degrees)), np.cos(np.radians(degrees))], 1).astype(np.float32)
        return pa.FixedSizeListArray.from_arrays(pa.array(pair.ravel()), 2)

    def network(self) -> AngleNetwork:
        return AngleNetwork()


class AngleNetwork:
    """The half that needs torch."""

    def encoder(self, metadata: JSON) -> Any:
        import torch

        encoder = torch.nn.Identity()
        encoder.output_size = 2
        return encoder
