"""How much memory this process may still take, and what it does with memory that it freed."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from distcore_data.figures import human_bytes

CGROUPS = Path("/sys/fs/cgroup")

KEPT_BYTES = 512 << 20
"""Of freed memory that may stay with the process."""

UNIT_OF_PEAK = 1 if sys.platform == "darwin" else 1024
"""Bytes of what `resource.getrusage` counts as `ru_maxrss`."""

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Of malloc.h."""


def free_bytes() -> int:
    """What the machine has left, or the limit of this process's control group if that is less; 0
    if unknown."""
    found = [_of_machine(), *_of_cgroups()]
    return min((each for each in found if each is not None), default=0)


def limit_in_words() -> str:
    """What to say beside an error that nobody expected if `ulimit -v` is set, of which the system
    tells in many ways (a library that is not mapped, a thread that is not started); "" if not."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return ""
    return (
        f"the memory of this process is limited to {human_bytes(limit)} (ulimit -v), which may be "
        "why: try a higher limit."
    )


def keep_freed_memory() -> bool:
    """Let memory that one step, or one batch, frees stay for the next. glibc gives it back to the
    kernel as soon as there are some megabytes, and a step then waits for the same pages, zeroed,
    again: up to a third of it.

    Whatever the user said about malloc in the environment stays. Returns whether it was done:
    False for a C library without such an option."""
    said = any(name.startswith("MALLOC_") for name in os.environ)
    if said or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # not glibc
        return False
    # No block is the kernel's by itself: those of more than 32 MiB, such as the gradient of a large
    # table, would go back to it at every step, whatever the threshold for others.
    both = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, KEPT_BYTES))
    return all(mallopt(option, value) == 1 for option, value in both)


def _of_machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:  # not Linux
        pass
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _of_cgroups() -> list[int]:
    """What is left under each memory limit that holds for us, of either version of control
    groups."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, names = CGROUPS, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root, names = (
                CGROUPS / "memory",
                ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            )
        else:
            continue
        # In a container the path may be the host's, and the mount's root is our own group.
        for folder in {root / path.lstrip("/"), root}:
            found += _left(folder, *names)
    return found


def _left(folder: Path, limit: str, usage: str, cached: str) -> list[int]:
    """Limit less usage, not counting pages of files that the kernel would drop; nothing if there
    is no limit."""
    try:
        most, used = int((folder / limit).read_text()), int((folder / usage).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such group, or "max"
        return []
    return [max(0, most - used + int(stat.get(cached, 0)))]
