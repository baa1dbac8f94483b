"""What a rank computes with: recorded in the ledger, because other bits may come of another
processor or torch.

Nothing here imports torch before it is asked for.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from inspect import unwrap
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from distcore_core.contracts import JSON
from distcore_torch.processor import maker, processor

if TYPE_CHECKING:
    import torch

log = logging.getLogger("distcore")

OTHERS = re.compile(r"(torch|distcore(_\w+)?)(\.|$)")
"""Modules whose code versions tell."""

SAID: dict[str, str] = {
    "code": "code of the network's own classes",
    "torch": "torch",
    "torch_build": "build of torch (torch.__config__.show())",
    "blas": "BLAS library",
    "python": "Python",
    "instruction_set": "instruction set of the processor",
    "maker": "maker of the processor",
    "processor": "processor",
    "device": "device",
    "threads": "number of threads",
}
"""Facts, by the words that people read, the most likely cause of other bits first."""

TELLING = ("code", "torch", "torch_build", "instruction_set", "maker", "device")
"""Facts that a run which goes on is warned of, if they are others. A processor's maker is one
because MKL asks for it: it has other kernels for another's, with the same instruction set."""


def rank_facts(device: str, network: torch.nn.Module) -> JSON:
    """What this process computes with on this device. Imports torch."""
    import torch

    return {
        **code_of(network),
        **torch_facts(),
        "python": platform.python_version(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "maker": maker(),
        "processor": processor(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu",
        "threads": torch.get_num_threads(),
    }


def code_of(network: torch.nn.Module) -> JSON:
    """The sha256 of the files that hold the network's classes, as they were imported: of those that
    are neither torch's nor distcore's, which versions tell; {} if there are none."""
    kinds = {type(each) for each in network.modules()}
    own = {
        (each.__module__, content_when_imported(each))
        for each in kinds
        if not OTHERS.match(each.__module__)
    }
    digest = hashlib.sha256()
    for content in sorted(content for _, content in own):
        digest.update(b"%d\0%s" % (len(content), content))
    return {"code": digest.hexdigest()} if own else {}


def warn_if_edited(network: torch.nn.Module) -> None:
    """Say so if a class of the network is no longer what its file says."""
    for kind in {type(each) for each in network.modules()}:
        content_when_imported(kind)


def content_when_imported(kind: type) -> bytes:
    """The content of the file that holds a class as Python imported it, for it does not read it
    again; nothing if it has none, as a notebook's cell, was edited before anybody first asked, or
    is of those whose code versions tell. Warns if the file is another one by now."""
    module = kind.__module__
    if OTHERS.match(module):
        return b""
    spec, now = getattr(sys.modules.get(module), "__spec__", None), _file_of(module)
    then, before = _imported.get(kind, ((), b""))
    # A reload makes another spec, but only %autoreload changes the classes that others imported.
    if now and then is not spec and _is_of(kind, spec, now):
        _imported[kind] = spec, (before := now)
    changed = now and before != now and module != "__main__"
    if changed and _told.get(module) != (before, now):
        _told[module] = before, now
        log.warning(
            "%s was changed after this process had imported it. What is computed here is as it "
            "was, while new processes (workers, whoever loads the model later) read the file. For "
            "the change, start this process again, or use importlib.reload on %s and on each "
            "module that imports from it.",
            sys.modules[module].__file__,
            module,
        )
    return before


_imported: WeakKeyDictionary[type, tuple[object, bytes]] = WeakKeyDictionary()
"""Of classes: the spec that their module was executed for, and the content of its file then."""


def _is_of(kind: type, spec: Any, content: bytes) -> bool:
    """Whether the class's functions are those of the file, as far as its loader can tell."""
    try:
        compiled, path = spec.loader.source_to_code, spec.origin
        functions = [unwrap(each) for each in vars(kind).values() if isinstance(each, FunctionType)]
        own = [each.__code__ for each in functions if isinstance(each, FunctionType)]
        there = _codes(compiled, content, path)
    except SyntaxError:  # it is being written
        return False
    except Exception:  # noqa: BLE001 - a loader that reads no such file
        return True
    # By ==: what the interpreter specialises as it runs may change a hash.
    return all(each in there for each in own if each.co_filename == path)


@lru_cache(maxsize=8)  # a file may hold many classes
def _codes(compiled: Callable[..., CodeType], content: bytes, path: str) -> list[CodeType]:
    """The code of all that is defined in a file."""
    found, left = [], [compiled(content, path)]
    while left:
        found.append(each := left.pop())
        left += (inner for inner in each.co_consts if isinstance(inner, CodeType))
    return found


_told: dict[str, tuple[bytes, bytes]] = {}
"""What was said last of a module: its content as it was imported, and that of its file."""


def _file_of(module: str) -> bytes:
    """The content of a module's file; nothing if it has none, as a notebook's cell."""
    try:
        return Path(str(sys.modules[module].__file__)).read_bytes()
    except (KeyError, AttributeError, OSError):
        return b""


@cache
def torch_facts() -> JSON:
    """Version, build and BLAS library of torch."""
    import torch

    shown = torch.__config__.show()
    named = re.search(r"BLAS_INFO=(\w+)", shown)
    build = hashlib.sha256(shown.encode()).hexdigest()
    return {
        "torch": torch.__version__,
        "torch_build": build,
        "blas": named[1] if named else "unknown",
    }


def of_group(ranks: Sequence[JSON]) -> JSON:
    """The facts of all ranks: each as what all have in common, or as a list in rank order."""
    together: JSON = {"workers": len(ranks)}
    for name in ranks[0]:
        values = [each[name] for each in ranks]
        together[name] = values[0] if all(each == values[0] for each in values) else values
    return together


def changes(before: JSON, now: JSON) -> list[str]:
    """`torch was 2.12.0 and is 2.13.0`, for each telling fact that is another one."""
    differ = [name for name in TELLING if name in before and before[name] != now.get(name)]
    return [
        f"the {SAID[name]} was {brief(before[name])} and is {brief(now.get(name))}"
        for name in differ
    ]


def brief(value: object) -> str:
    """A fact for people: of a digest its beginning."""
    text = str(value)
    return f"{text[:12]}…" if re.fullmatch(r"[0-9a-f]{64}", text) else text
