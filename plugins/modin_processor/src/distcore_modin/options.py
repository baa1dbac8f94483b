"""The options of the Modin processor."""

from __future__ import annotations

from pydantic import BaseModel

from distcore_data.cluster_options import ClusterOptions


class ModinOptions(ClusterOptions):
    """`backend.processor: {type: modin}`."""


MODELS: dict[tuple[str, str], type[BaseModel]] = {("processors", "modin"): ModinOptions}
