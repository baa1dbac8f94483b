"""What a rank computes with: recorded in the ledger, because other bits may come of another
processor or torch.

Nothing here imports torch before it is asked for.
"""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from distcore_core.contracts import JSON
from distcore_torch.processor import maker, processor

if TYPE_CHECKING:
    import torch

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
    """The sha256 of the files that hold the network's classes, as they are now: of those that are
    neither torch's nor distcore's, which versions tell; {} if there are none."""
    names = {type(each).__module__ for each in network.modules()}
    own = {name for name in names if not re.match(r"(torch|distcore(_\w+)?)(\.|$)", name)}
    digest = hashlib.sha256()
    for content in sorted(map(_file_of, own)):
        digest.update(b"%d\0%s" % (len(content), content))
    return {"code": digest.hexdigest()} if own else {}


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
