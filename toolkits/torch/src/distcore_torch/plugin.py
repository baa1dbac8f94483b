"""What distcore-torch offers: the section `trainer`, optimizers, and schedules of the learning
rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_member(kind: str, name: str, options: Any, context: Mapping[str, Any]) -> Any:
    if kind == "optimizers":
        from distcore_torch.training.optim import builtin_optimizer

        return builtin_optimizer(name, options, context["parameters"], context["learning_rate"])
    if kind == "schedules":
        from distcore_torch.training.decays import builtin_schedule

        return builtin_schedule(name, options, **context)
    return None


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    if kind == "optimizers":
        from distcore_torch.optimizer_options import MODELS

        return MODELS.get(name)
    if kind == "schedules":
        from distcore_torch.schedule_options import DECAYS

        return DECAYS.get(name)
    return None


@hookimpl
def distcore_config_section(name: str, given: Any, plugins: Any) -> type | None:
    if name != "trainer":
        return None
    from distcore_torch.train_options import options_model

    return options_model(given, plugins)
