"""What distcore-tfrecord offers: the cache format that TensorFlow reads."""

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
    if name != "tfrecord":
        return None
    from distcore_tfrecord.format import TFRecordFormat

    return TFRecordFormat(options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    """The options of the format."""
    from distcore_tfrecord import options

    return options.MODELS.get((kind, name))
