"""What distcore-parquet offers: the cache format that people can read with anything."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)

DATA_VERSION = 1
"""Raised whenever these files encode the same rows otherwise: caches and models of another are
then refused."""


@hookimpl
def distcore_make_cache(name: str, options: Any) -> Any:
    """Make the format."""
    if name != "parquet":
        return None
    from distcore_parquet.format import ParquetFormat

    return ParquetFormat(options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    """The options of the format."""
    from distcore_parquet import options

    return options.MODELS.get((kind, name))
