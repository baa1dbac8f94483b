"""The processors and GPUs of this machine, from /sys and /dev alone: nothing heavy is imported."""

from __future__ import annotations

import os
from pathlib import Path

from distcore_data.threads import processors

CGROUP = Path("/sys/fs/cgroup")
DEVICES = Path("/dev")


def cpus(cgroup: Path = CGROUP) -> int:
    """CPUs this process may use: its affinity, and the quota of its cgroup, rounded up."""
    mine, quota = processors(), _cpu_quota(cgroup)
    return mine if quota is None else max(1, min(mine, quota))


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


def _cpu_quota(cgroup: Path) -> int | None:
    """CPUs of a cgroup v2 limit (`cpu.max`: quota and period in microseconds), rounded up; None:
    no limit."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else -(-int(quota) // int(period))
