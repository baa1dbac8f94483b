"""Check this machine and what each plugin needs, without starting anything."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from distcore.workflow import ports
from distcore.workflow.listing import rows, together
from distcore.workflow.probe import ask
from distcore_core.errors import DistcoreError, UserError
from distcore_core.registry.index import Offer
from distcore_core.registry.manager import Plugins
from distcore_data.figures import human_bytes
from distcore_data.temporaries import system_folder
from distcore_data.threads import processors

MINIMUM = {"torch": (2, 10), "pyarrow": (14, 0, 1)}
"""Oldest versions without a known way to run code from a data file."""

COMPILED = {
    "reader of csv and JSON lines": (
        "distcore_data.sources._plaintext",
        "Arrow reads them, at half the speed or less",
    ),
    "reader of Parquet's columns": (
        "distcore_data.sources._columns",
        "Arrow reads them, at half the speed or less",
    ),
    "short floats": (
        "distcore_data.sources._floats",
        "Arrow writes and reads them as texts, at a fifth of the speed or less",
    ),
    "dates": (
        "distcore_data.encoding._dates",
        "numpy reads and divides them, at half the speed or less",
    ),
    "sums of number columns": (
        "distcore_data.encoding._numbers",
        "numpy adds them up, more slowly",
    ),
    "distinct texts": (
        "distcore_data.encoding._texts",
        "Arrow and Python count them, more slowly",
    ),
    "rows of batches": (
        "distcore_torch._gather",
        "Arrow and numpy pack and gather them, more slowly",
    ),
    "layers by oneDNN": (
        "distcore_torch._products",
        "torch computes gradients of weights, more slowly",
    ),
    "sums of exact training": (
        "distcore_torch.training._sums",
        "torch adds them up, more slowly",
    ),
}
"""What each is for: its module, and what is done without it. The results are the same."""

LEAST_FREE = 10**9
"""Bytes that the folders should have, where caches, results and temporary files go."""

SECONDS = 60.0
"""How long one plugin's own checks may take: they may import an engine, and look whether a
cluster answers."""


class Check(NamedTuple):
    """One thing that was checked: whose part it is, what, whether it is well, and what was
    found."""

    part: str
    what: str
    well: bool
    found: str


def checks() -> list[Check]:
    """Everything, machine first, then each plugin."""
    found = [*_machine(), *_libraries(), *_listening()]
    try:
        return [*found, *_plugins()]
    except DistcoreError as error:  # they cannot be asked here; the rest may say why
        return [*found, Check("distcore", "plugins", False, str(error))]


def _machine() -> Iterator[Check]:
    yield Check("machine", "Python", sys.version_info >= (3, 11), platform.python_version())
    cpus = processors()
    yield Check("machine", "processors", cpus >= 1, str(cpus))
    folders = [("working folder", os.getcwd())]
    try:
        folders.append(("temporary folder", str(system_folder())))
    except UserError as error:
        yield Check("machine", "temporary folder", False, str(error))
    for what, folder in folders:
        free, writable = shutil.disk_usage(folder).free, os.access(folder, os.W_OK)
        told = f"{human_bytes(free)} free"
        if free < LEAST_FREE:
            told += f" of at least {human_bytes(LEAST_FREE)} that should be"
        if not writable:
            told += "; this user may not write there"
        yield Check("machine", f"{what} {folder}", writable and free >= LEAST_FREE, told)


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

    for what, (module, without) in COMPILED.items():
        yield Check("distcore", f"compiled {what}", True, _compiled(module, without))


def _compiled(module: str, without: str) -> str:
    """Whether a compiled module can be used, and what to do if not."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError) or error.name != module:
            return f"it cannot be loaded ({error}); {without}"
        source = _source_of(module)
        if source is None:
            return f"not built: no C compiler was there at installation; {without}"
        return (
            f"not built in this source tree; {without}. Build it with: cd {source} && "
            f"{sys.executable} setup.py -q build_ext --inplace"
        )
    return "built"


def _source_of(module: str) -> Path | None:
    """The folder with the setup.py that builds a module; None if it was installed from a wheel."""
    package, _, name = module.rpartition(".")
    for place in importlib.import_module(package).__path__:
        if Path(place, f"{name}.c").exists():
            return next(
                (each for each in Path(place).parents if (each / "setup.py").exists()), None
            )
    return None


def _listening() -> Iterator[Check]:
    """What distcore's processes of this user listen on now; beyond the loopback others reach it."""
    found = ports.listening(ports.of_distcore())
    beyond = [each for each in found if not each.loopback]
    if beyond:
        told = (
            f"{', '.join(map(str, beyond))}: reached from the network; docs/security.md says when "
            "that is meant"
        )
    elif found:
        told = f"on the loopback alone: {', '.join(map(str, found))}"
    else:
        told = "nothing"
    yield Check("distcore", "what listens", True, told)


def _plugins() -> Iterator[Check]:
    """Each plugin that can be loaded, and what its own checks say; that they fail or hang is a
    finding too."""
    plugins = Plugins()
    found = rows(plugins)
    offers = {
        (row.role, row.name): plugins.find(row.role, row.name) for row in found if row.state == "ok"
    }
    modules: dict[
        tuple[str, str], Offer
    ] = {}  # several entry points may name one module, which is asked once
    for row in found:
        if row.state == "ok":
            offer = offers[row.role, row.name]
            modules.setdefault((offer.distribution, offer.value), offer)
    answers = dict(
        zip(modules, ask(list(modules.values()), "diagnose", SECONDS, plugins.block), strict=True)
    )
    for row in together(found):
        part = f"{row.distribution} {row.version}"
        yield Check(part, f"{row.role} {row.name}", row.state != "broken", row.error or row.state)
        if row.state == "ok":
            for offer in (offers[row.role, name] for name in row.name.split(", ")):
                yield from _diagnosis(part, answers.pop((offer.distribution, offer.value), {}))


def _diagnosis(part: str, answer: Mapping[str, Any]) -> Iterator[Check]:
    if "error" in answer:
        yield Check(part, "its own checks", False, f"they failed: {answer['error']}")
    for what, well, found in answer.get("checks", []):
        yield Check(part, what, well, found)
