"""What distcore-avro offers: the cache format `avro`. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_cache(name: str, options: Any) -> Any:
    """The format, if it is the one that is wanted. It has no options."""
    if name != "avro":
        return None
    from distcore_avro.format import AvroFormat

    return AvroFormat()
