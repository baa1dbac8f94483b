"""What distcore-weights offers: the command `weights`. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_command(name: str) -> Any:
    """The command, if it is the one that is wanted."""
    if name != "weights":
        return None
    from distcore_weights.command import WeightsCommand

    return WeightsCommand()
