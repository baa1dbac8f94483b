"""What distcore-fwf offers: the data format `fwf`. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)
DATA_VERSION = 1


@hookimpl
def distcore_make_member(kind: str, name: str) -> Any:
    """The format, if it is the one that is wanted. It has no options."""
    if (kind, name) != ("sources", "fwf"):
        return None
    from distcore_fwf.format import FixedWidth

    return FixedWidth()
