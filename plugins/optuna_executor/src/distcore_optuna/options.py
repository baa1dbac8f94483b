"""The options of the local executor: Ludwig's for all executors, and those of its `optuna`
executor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from distcore_data.base_options import Resources
from distcore_search.options import ExecutorOptions

PRUNERS: Mapping[str, Mapping[str, Any]] = {
    "median": {
        "type": "median_stopping_rule",
        "time_attr": "training_iteration",
        "grace_period": 0,
        "min_samples_required": 5,
    },
    "hyperband": {"type": "hyperband", "stop_last_trials": False},
}
"""The schedulers that are Optuna's of these names, as it has them by default."""


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
        description="Ludwig's short word for a scheduler: median_stopping_rule, or hyperband "
        "without an end at max_t, by rounds.",
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

    @model_validator(mode="before")
    @classmethod
    def _pruner_is_a_scheduler(cls, values: Any) -> Any:
        name = values.get("pruner") if isinstance(values, Mapping) else None
        if not isinstance(name, str) or name not in PRUNERS:
            return values
        given = values.get("scheduler")
        if isinstance(given, Mapping):
            given = given.get("type")
        if given not in (None, "fifo"):
            raise ValueError("pruner and scheduler are two words for the same; keep scheduler")
        return {**values, "pruner": None, "scheduler": PRUNERS[name]}


MODELS: dict[tuple[str, str], type[BaseModel]] = {
    ("executors", "local"): LocalOptions,
    ("executors", "optuna"): LocalOptions,
}
