"""Checks of this plugin's parts for `distcore doctor`."""

from __future__ import annotations

import importlib.util
import os

from distcore_data.figures import human_bytes
from distcore_data.gpus import gpus
from distcore_data.memory import free_bytes
from distcore_data.threads import processors
from distcore_local import shared_memory


def checks() -> list[tuple[str, bool, str]]:
    """(what was checked, whether it is well, what was found)."""
    found = [
        ("processors", True, f"{processors()} of {os.cpu_count()} usable"),
        ("GPUs", True, str(gpus())),
    ]
    free = free_bytes()
    found.append(("memory", free > 256 << 20, f"{human_bytes(free)} free"))
    if importlib.util.find_spec("torch") is None:
        return [*found, ("torch", False, "not installed: pip install torch")]
    import torch
    import torch.distributed as dist

    found.append(("torch", True, f"{torch.__version__}, {torch.get_num_threads()} threads"))
    found.append(
        (
            "torch.distributed",
            dist.is_available(),
            "gloo" if dist.is_gloo_available() else "no gloo",
        )
    )
    if gpus():
        well = torch.cuda.is_available()
        found.append(
            (
                "CUDA",
                well,
                f"{torch.cuda.device_count()} GPUs" if well else "torch sees no GPU: a CPU build?",
            )
        )
    shared = shared_memory.possible(2, 1, torch.float32, 2)
    found.append(("shared gradients", True, "in shared memory" if shared else "through gloo"))
    return found
