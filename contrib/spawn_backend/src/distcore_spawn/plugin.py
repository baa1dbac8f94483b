"""What distcore-spawn offers: the backend `spawn`. Nothing heavy is imported here."""

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 0)


@hookimpl
def distcore_make_backend(name: str) -> Any:
    """The backend, if it is the one that is wanted."""
    if name != "spawn":
        return None
    from distcore_spawn.backend import SpawnBackend

    return SpawnBackend()
