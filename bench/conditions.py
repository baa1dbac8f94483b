"""Under what conditions a stage was measured: machine, versions, date, commit, load."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

VERSIONS = ("distcore", "torch", "pyarrow", "numpy", "polars", "torchmetrics")


def conditions(quick: bool) -> dict[str, Any]:
    """What does not change while a stage runs."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "quick": quick,
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9,
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": {name: version(name) for name in VERSIONS},
    }


def load() -> float:
    """Processes that want to run, over the last minute."""
    return os.getloadavg()[0]


def version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def commit() -> str:
    """The commit that was measured, with a + if files differ from it."""
    here = Path(__file__).parent
    try:
        short = _git(here, "rev-parse", "--short=10", "HEAD")
        return short + ("+" if _git(here, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):  # not a checkout
        return "unknown"


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine()


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()
