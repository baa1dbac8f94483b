"""Options of `trainer.callbacks: [{type: ema, …}, {type: sam, …}]`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class EmaOptions(BaseModel):
    """Evaluate and save an exponential moving average of the weights."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decay: float = Field(0.999, ge=0, lt=1, description="Share of the average that stays a step.")


class SamOptions(BaseModel):
    """Step by the gradients at the worst point near the weights (Foret et al., 2021)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    radius: float = Field(0.05, gt=0, description="Distance of that point from the weights.")


MODELS: dict[str, type[BaseModel]] = {"ema": EmaOptions, "sam": SamOptions}
