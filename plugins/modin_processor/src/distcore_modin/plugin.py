"""What distcore-modin offers: the processor that keeps the rows in Modin's partitions on Ray."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_processor(name: str, options: Any) -> Any:
    """Make the processor."""
    if name != "modin":
        return None
    from distcore_modin.processor import ModinProcessor

    return ModinProcessor(options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    """The options of the processor."""
    from distcore_modin import options

    return options.MODELS.get((kind, name))
