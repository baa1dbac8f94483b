"""Options of `backend: {trainer: {type: ridge, …}}`."""

from pydantic import BaseModel, ConfigDict, Field


class RidgeOptions(BaseModel):
    """An unknown option is an error that names the nearest one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    penalty: float = Field(1.0, ge=0, description="Of the squared coefficients.")
