"""Run a command in a memory control group of its own: page cache counts too. Needs root and cgroup
v1 or v2.

python bench/limit.py 1G COMMAND …
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from measure import emit

ROOT = Path("/sys/fs/cgroup")
UNITS = {"M": 1 << 20, "G": 1 << 30}


def available() -> bool:
    """Whether such a group can be made here."""
    try:
        group = _make("distcore-bench-probe")
        group.rmdir()
    except OSError:
        return False
    return True


def _make(name: str) -> Path:
    group = (ROOT / "memory" if _is_v1() else ROOT) / name
    group.mkdir()
    if not (group / _file("memory.limit_in_bytes", "memory.max")).exists():
        group.rmdir()
        raise OSError("the memory controller is not enabled")
    return group


def _is_v1() -> bool:
    return (ROOT / "memory").is_dir()


def _file(first: str, second: str) -> str:
    return first if _is_v1() else second


def main() -> int:
    limit, command = sys.argv[1], sys.argv[2:]
    group = _make(f"distcore-bench-{os.getpid()}")
    try:
        (group / _file("memory.limit_in_bytes", "memory.max")).write_text(
            str(int(limit[:-1]) * UNITS[limit[-1]])
        )
        process = subprocess.Popen(
            command,
            preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())) and None,
        )
        code = process.wait()
        peak = int((group / _file("memory.max_usage_in_bytes", "memory.peak")).read_text())
        emit(group_peak_mb=peak / 2**20)
    finally:
        try:
            (group / _file("memory.force_empty", "memory.reclaim")).write_text(
                "0" if _is_v1() else "1G"
            )
        except OSError:  # what is left is freed with the group
            pass
        group.rmdir()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
