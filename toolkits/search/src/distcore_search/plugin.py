"""What distcore-search offers: the section `hyperopt`, and the extension through which trials
tell their rounds."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_extension(name: str, options: Any) -> Any:
    if name != "rounds":
        return None
    from distcore_search.rounds import Rounds

    return Rounds(options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    if (kind, name) != ("extensions", "rounds"):
        return None
    from distcore_search.rounds import RoundsOptions

    return RoundsOptions


@hookimpl
def distcore_config_section(name: str) -> type | None:
    if name != "hyperopt":
        return None
    from distcore_search.options import Hyperopt

    return Hyperopt
