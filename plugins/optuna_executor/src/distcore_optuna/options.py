"""The options of the local executor: Ludwig's for all executors, and those of its `optuna`
executor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from distcore_data.base_options import Resources
from distcore_search.options import ExecutorOptions


class LocalOptions(ExecutorOptions):
    """`hyperopt.executor: {type: local}`."""

    unread: ClassVar[Mapping[str, str]] = {
        **ExecutorOptions.unread,
        "trial_driver_resources": "the process that looks after a trial on Ray is the trial "
        "itself on this machine",
        "storage": "the study is study.journal in the search's folder, and --model_resume_path "
        "goes on with it",
        "study_name": "a folder holds one study",
    }

    sampler: Literal["auto", "tpe", "random", "gp", "cmaes"] = Field(
        "auto",
        description="How Optuna chooses, if search_alg names nothing else; auto: tpe. gp and cmaes "
        "need packages of their own (scipy; cmaes).",
    )
    pruner: Literal["median", "hyperband"] | None = Field(
        None,
        description="Ludwig's short word for a scheduler: median_stopping_rule, or hyperband, by "
        "rounds.",
    )

    trial_driver_resources: Resources | None = Field(
        None, description="For the executor ray; it changes nothing here."
    )
    storage: str | None = Field(None, description="Ludwig's; it changes nothing here.")
    study_name: str | None = Field(None, description="Ludwig's; it changes nothing here.")

    @field_validator("scheduler", mode="after")
    @classmethod
    def _whole_factors(cls, scheduler: Any) -> Any:
        factor = getattr(scheduler, "reduction_factor", 2)
        if factor != int(factor) or factor < 2:
            raise ValueError(
                f"reduction_factor should be a whole number from 2 here; got {factor:g}"
            )
        return scheduler

    @model_validator(mode="after")
    def _one_of_the_two(self) -> LocalOptions:
        if self.pruner is not None and self.scheduler.type != "fifo":
            raise ValueError("pruner and scheduler are two words for the same; keep scheduler")
        return self


MODELS: dict[tuple[str, str], type[BaseModel]] = {
    ("executors", "local"): LocalOptions,
    ("executors", "optuna"): LocalOptions,
}
