"""What the app itself offers as a plugin: the commands `hyperopt` and `cache`."""

from __future__ import annotations

from typing import Any

from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_command(name: str) -> Any:
    if name == "hyperopt":
        from distcore.cli.search import HyperoptCommand

        return HyperoptCommand()
    if name == "cache":
        from distcore.cli.cache import CacheCommand

        return CacheCommand()
    return None
