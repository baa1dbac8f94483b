"""What distcore-lightgbm offers: the trainer `lightgbm`. LightGBM is imported when a run asks
for it."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_trainer(name: str, options: Any) -> Any:
    """The trainer, if it is the one that is wanted."""
    if name != "lightgbm":
        return None
    from distcore_lightgbm.trainer import LightGBMTrainer

    return LightGBMTrainer(options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    """The model that validates the trainer's options."""
    if (kind, name) != ("trainers", "lightgbm"):
        return None
    from distcore_lightgbm.options import LightGBMOptions

    return LightGBMOptions


@hookimpl
def distcore_diagnose() -> list[tuple[str, bool, str]]:
    """Whether LightGBM is there, for `distcore doctor`."""
    from importlib import metadata

    try:
        return [("lightgbm library", True, metadata.version("lightgbm"))]
    except metadata.PackageNotFoundError:
        return [("lightgbm library", False, "not installed; pip install lightgbm")]
