"""What distcore-ridge offers: the trainer `ridge`. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_trainer(name: str, options: Any) -> Any:
    """The trainer, if it is the one that is wanted."""
    if name != "ridge":
        return None
    from distcore_ridge.trainer import RidgeTrainer

    return RidgeTrainer(options.penalty)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    """The model that validates its options."""
    if (kind, name) != ("trainers", "ridge"):
        return None
    from distcore_ridge.options import RidgeOptions

    return RidgeOptions
