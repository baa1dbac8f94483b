"""What distcore-testing offers: the command `new-plugin`. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_command(name: str) -> Any:
    """The command, if it is the one that is wanted."""
    if name != "new-plugin":
        return None
    from distcore_testing.new_plugin import NewPluginCommand

    return NewPluginCommand()
