"""The options of `hyperopt.executor: {type: ray}`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from distcore_search.options import ExecutorOptions

Amount = Annotated[float, Field(ge=0)]


class TuneOptions(ExecutorOptions):
    """`hyperopt.executor: {type: ray}`. What a trial's own workers get is said in
    `backend.trainer`."""

    trial_driver_resources: dict[str, Amount] | None = Field(
        None,
        description="What a trial takes for itself, beside its workers, on the backend ray; "
        "default: no CPU. Elsewhere the trial is the worker.",
    )
    max_retries: int = Field(
        3,
        ge=0,
        description="How often a trial whose process is lost, with its node or for want of memory, "
        "goes on in another from its last checkpoint.",
    )

    @field_validator("scheduler", mode="after")
    @classmethod
    def _no_pauses(cls, scheduler: Any) -> Any:
        if scheduler.type == "hyperband":
            raise ValueError(
                "hyperband pauses trials and takes them up again, which is not carried out on Ray; "
                "use async_hyperband"
            )
        return scheduler
