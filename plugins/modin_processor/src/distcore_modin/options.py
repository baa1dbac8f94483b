"""The options of the Modin processor."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ModinOptions(BaseModel):
    """`backend.processor: {type: modin}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parallelism: int | None = Field(
        default=None,
        ge=1,
        description="Partitions to cut the data into, at least, and so how many tasks can run at a time; default: four "
        "for each CPU. They are never larger than 16 MiB and, to reach this number, never smaller than 1 MiB.",
    )


MODELS: dict[tuple[str, str], type[BaseModel]] = {("processors", "modin"): ModinOptions}
