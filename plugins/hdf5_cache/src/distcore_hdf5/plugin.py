"""What distcore-hdf5 offers: the cache format that h5py, MATLAB, Julia and R read."""

from __future__ import annotations

from typing import Any

from distcore.hooks import hookimpl

DISTCORE_API = (1, 0)


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
