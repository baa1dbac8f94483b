"""The GPUs of this machine, from /dev alone: nothing heavy is imported."""

from __future__ import annotations

import os
from pathlib import Path

DEVICES = Path("/dev")


def gpus(devices: Path = DEVICES) -> int:
    """NVIDIA GPUs that this process may see: CUDA_VISIBLE_DEVICES, within the device files that
    are there."""
    present = sum(
        1 for path in devices.glob("nvidia[0-9]*") if path.name.removeprefix("nvidia").isdigit()
    )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    chosen = [part.strip() for part in visible.split(",") if part.strip()]
    # CUDA takes the list up to the first entry that is no device; a GPU may also be named by its
    # UUID.
    none = (
        index
        for index, part in enumerate(chosen)
        if part == "-1" or (part.isdigit() and int(part) >= present)
    )
    return min(next(none, len(chosen)), present)
