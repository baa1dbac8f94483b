"""What distcore-hdf5 offers: the cache format that h5py, MATLAB, Julia and R read."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)

DATA_VERSION = 2
"""Raised whenever these files encode the same rows otherwise: caches and models of another are
then refused."""


@hookimpl
def distcore_make_cache(name: str, options: Any) -> Any:
    """Make the format."""
    if name != "hdf5":
        return None
    from distcore_hdf5.format import Hdf5Format

    return Hdf5Format(options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    """The options of the format."""
    from distcore_hdf5 import options

    return options.MODELS.get((kind, name))
