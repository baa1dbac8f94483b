"""Options of the trainer and of the feature."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class MeanOptions(BaseModel):
    """shrink: rows at the prior (0 for a number, even shares for classes) that the mean is drawn to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    shrink: float = Field(0.0, ge=0)


class AngleOptions(BaseModel):
    """offset: degrees that are added."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    offset: float = 0.0
