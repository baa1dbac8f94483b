"""The Horovod that is installed: whether it has torch support, and for which torch; found
without importing it."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from distcore_core.errors import UserError

BUILD = "Build one that fits with: distcore-horovod build --install"


@dataclass(frozen=True)
class Found:
    """version: of Horovod. torch: the one it was built for, or None if it has no torch support."""

    version: str
    torch: str | None


def folder() -> Path | None:
    """Where Horovod's package lies; None: it is not installed."""
    package = importlib.util.find_spec("horovod")
    if package is None or not package.submodule_search_locations:
        return None
    return Path(next(iter(package.submodule_search_locations)))


def found() -> Found | None:
    """What is installed; None: no Horovod."""
    at = folder()
    if at is None:
        return None
    try:
        version = metadata.version("horovod")
    except metadata.PackageNotFoundError:  # a checkout on the path
        version = "unknown"
    if not list((at / "torch").glob("mpi_lib_v2*.so")):
        return Found(version, None)
    try:
        built_for = json.loads((at / "metadata.json").read_text()).get("pytorch")
    except (OSError, ValueError):
        built_for = None
    return Found(version, built_for or "unknown")


def torch_version() -> str | None:
    """The torch that is installed, without importing it."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def problem() -> str | None:
    """What stands against using the installed Horovod, with the way out; None: nothing."""
    horovod, torch = found(), torch_version()
    if horovod is None:
        return (
            f"Horovod is not installed (and the registry's own build has no torch support). {BUILD}"
        )
    if horovod.torch is None:
        return f"The installed Horovod {horovod.version} was built without torch support. {BUILD}"
    if horovod.torch not in (torch, "unknown"):
        was = f"The installed Horovod {horovod.version} was built for torch {horovod.torch}"
        return f"{was}, but torch {torch} is here. {BUILD}"
    return None


def require() -> None:
    """Raise UserError if Horovod cannot be used."""
    said = problem()
    if said is not None:
        raise UserError(said)
