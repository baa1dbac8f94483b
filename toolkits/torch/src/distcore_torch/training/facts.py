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
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING
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
    """The sha256 of the files that hold the network's classes, as `imported` knows them: of those
    that are neither torch's nor distcore's, which versions tell; {} if there are none."""
    kinds = {type(each) for each in network.modules()}
    own = {(each.__module__, imported(each)) for each in kinds if not OTHERS.match(each.__module__)}
    digest = hashlib.sha256()
    for content in sorted(content for _, content in own):
        digest.update(b"%d\0%s" % (len(content), content))
    return {"code": digest.hexdigest()} if own else {}


def imported(kind: type) -> bytes:
    """The content of the file that holds a class as it was when this process first asked, for what
    Python has imported it does not read again; nothing if there is none, as of a notebook's cell.
    Warns if the file is another one by now."""
    module, functions = kind.__module__, vars(kind).values()
    now = _file_of(module)
    codes = [each.__code__ for each in functions if isinstance(each, FunctionType)]
    then, before = _imported.get(kind, (None, now))
    # %autoreload puts new code into the functions of a class that others have imported.
    if then is None or list(map(id, codes)) != list(map(id, then)):
        before = now
        _imported[kind] = codes, now
    changed = before and now and before != now and module != "__main__"
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


_imported: WeakKeyDictionary[type, tuple[list[CodeType], bytes]] = WeakKeyDictionary()
"""Of classes: the code of their functions, and the content of the file that it is of."""

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
