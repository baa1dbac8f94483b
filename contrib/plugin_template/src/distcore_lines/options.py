"""Options of `extensions: [{type: lines, …}]`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class LinesOptions(BaseModel):
    """An unknown option is an error that names the nearest one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(
        "evaluations.jsonl", min_length=1, description="File that lines are added to."
    )
