"""What processors, cache formats and trainers are made with: sources, datasets, encoding, caches,
stores.

What is public is exported here, and imported when it is first used; `distcore_core.plugin` has the
roles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distcore_core.lazy import on_first_use

if TYPE_CHECKING:
    from distcore_data.arrow import from_numpy, to_numpy
    from distcore_data.artifact import write_artifact
    from distcore_data.cache import open_cache
    from distcore_data.cache.reader import CacheReader
    from distcore_data.columns import Values, batch_of, columns_of, row_range
    from distcore_data.encoding.exactsum import Moments
    from distcore_data.encoding.splitter import Rows, Splitter
    from distcore_data.features import Features
    from distcore_data.roles import SOURCE, SPLITTER, STORE
    from distcore_data.seals import sealed
    from distcore_data.sources.formats import DataFormat, Given
    from distcore_data.sources.held import TableFormat
    from distcore_data.stores.store import Stat, Store

__all__ = [
    "SOURCE",
    "SPLITTER",
    "STORE",
    "CacheReader",
    "DataFormat",
    "Features",
    "Given",
    "Moments",
    "Rows",
    "Splitter",
    "Stat",
    "Store",
    "TableFormat",
    "Values",
    "batch_of",
    "columns_of",
    "from_numpy",
    "open_cache",
    "row_range",
    "sealed",
    "to_numpy",
    "write_artifact",
]

__getattr__ = on_first_use(
    __name__,
    {
        "CacheReader": "cache.reader",
        "DataFormat": "sources.formats",
        "Features": "features",
        "Given": "sources.formats",
        "Moments": "encoding.exactsum",
        "SOURCE": "roles",
        "Rows": "encoding.splitter",
        "SPLITTER": "roles",
        "STORE": "roles",
        "Splitter": "encoding.splitter",
        "Stat": "stores.store",
        "Store": "stores.store",
        "TableFormat": "sources.held",
        "Values": "columns",
        "batch_of": "columns",
        "columns_of": "columns",
        "from_numpy": "arrow",
        "open_cache": "cache",
        "row_range": "columns",
        "sealed": "seals",
        "to_numpy": "arrow",
        "write_artifact": "artifact",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
