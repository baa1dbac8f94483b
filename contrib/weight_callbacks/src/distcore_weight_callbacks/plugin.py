"""What distcore-weight-callbacks offers: the callbacks `ema` and `sam`. Nothing heavy is imported
here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_member(kind: str, name: str, options: Any, context: Mapping[str, Any]) -> Any:
    """The callback that is wanted, around the module of this rank."""
    if (kind, name) == ("callbacks", "ema"):
        from distcore_weight_callbacks.ema import Ema

        return Ema(context["module"], options.decay)
    if (kind, name) == ("callbacks", "sam"):
        from distcore_weight_callbacks.sam import Sam

        return Sam(context["module"], options.radius)
    return None


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    """The models that validate their options."""
    from distcore_weight_callbacks import options

    return options.MODELS.get(name)
