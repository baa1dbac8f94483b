"""The options that every processor on a cluster has; a plugin's own model adds what its engine
needs."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ClusterOptions(BaseModel):
    """Of `backend.processor`, for processors that cut their data by `tiles.cut_evenly`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parallelism: int | None = Field(
        default=None,
        ge=1,
        description="Partitions to cut the data into, at least, and so how many tasks can run at a "
        "time; default: four for each CPU. They are never larger than 16 MiB and, to reach "
        "this number, never smaller than 1 MiB.",
    )
