"""What distcore-frozen offers: the trainer `frozen_mean`, the cache format `frozen_ipc`, the feature `frozen_angle`."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)
DATA_VERSION = 1


@hookimpl
def distcore_make_trainer(name: str, options: Any) -> Any:
    if name == "frozen_mean":
        from distcore_frozen.trainer import MeanTrainer

        return MeanTrainer(options)
    return None


@hookimpl
def distcore_make_cache(name: str, options: Any) -> Any:
    if name == "frozen_ipc":
        from distcore_frozen.cache import IpcFormat

        return IpcFormat()
    return None


@hookimpl
def distcore_make_feature(name: str, column: str, options: Any) -> Any:
    if name == "frozen_angle":
        from distcore_frozen.feature import Angle

        return Angle(column, options)
    return None


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    from distcore_frozen import options

    models = {
        ("trainers", "frozen_mean"): options.MeanOptions,
        ("features", "frozen_angle"): options.AngleOptions,
    }
    return models.get((kind, name))
