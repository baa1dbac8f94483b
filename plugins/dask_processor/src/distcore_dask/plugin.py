"""What distcore-dask offers: the processor that runs preprocessing as Dask tasks."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_processor(name: str, options: Any) -> Any:
    """Make the processor."""
    if name != "dask":
        return None
    from distcore_dask.processor import DaskProcessor

    return DaskProcessor(options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    """The options of the processor."""
    from distcore_dask import options

    return options.MODELS.get((kind, name))
