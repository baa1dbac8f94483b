"""Check this machine and what each plugin needs, without starting anything."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from types import ModuleType
from typing import NamedTuple

from distcore.inventory import rows
from distcore.plugins import Plugins

MINIMUM = {"torch": (2, 10), "pyarrow": (14, 0, 1)}
"""Oldest versions without a known way to run code from a data file."""


class Check(NamedTuple):
    """One thing that was checked: whose part it is, what, whether it is well, and what was found."""

    part: str
    what: str
    well: bool
    found: str


def checks() -> list[Check]:
    """Everything, machine first, then each plugin."""
    return [*_machine(), *_libraries(), *_plugins()]


def _machine() -> Iterator[Check]:
    yield Check("machine", "Python", sys.version_info >= (3, 11), platform.python_version())
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Check("machine", "processors", cpus >= 1, str(cpus))
    for what, folder in (("working folder", os.getcwd()), ("temporary folder", tempfile.gettempdir())):
        free = shutil.disk_usage(folder).free
        yield Check(
            "machine", f"{what} {folder}", os.access(folder, os.W_OK) and free > 1 << 30, f"{free / 1e9:.1f} GB free"
        )


def _libraries() -> Iterator[Check]:
    for name in ("numpy", "pyarrow", "torch", "torchmetrics", "pydantic", "safetensors", "fsspec"):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Check("library", name, False, f"not installed; pip install {name}")
            continue
        numbers = tuple(int(part) for part in version.split("+")[0].split(".") if part.isdigit())
        least = MINIMUM.get(name, ())
        wanted = "" if numbers >= least else f"; at least {'.'.join(map(str, least))} is needed"
        yield Check("library", name, numbers >= least, version + wanted)


def _plugins() -> Iterator[Check]:
    plugins = Plugins()
    asked = set()
    for row in rows(plugins):
        part = f"{row.distribution} {row.version}"
        yield Check(part, f"{row.role} {row.name}", row.state != "broken", row.error or row.state)
        if row.state != "ok":
            continue
        module = plugins.load(row.role, row.name)
        if module not in asked:
            asked.add(module)
            yield from _diagnosis(part, module)


def _diagnosis(part: str, module: ModuleType) -> list[Check]:
    """What a plugin's own checks say; that they fail is a finding too."""
    diagnose = getattr(module, "distcore_diagnose", None)
    if diagnose is None:
        return []
    try:
        return [Check(part, str(what), bool(well), str(found)) for what, well, found in diagnose() or []]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin does becomes its row
        return [Check(part, "its own checks", False, f"they failed: {type(error).__name__}: {error}")]
