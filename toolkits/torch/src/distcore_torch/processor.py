"""The processor of this machine, as the system tells it."""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def processor() -> str:
    """Maker and model of the processor."""
    return " ".join(_told().values()) or platform.processor() or platform.machine()


def maker() -> str:
    """Of the processor, as in "GenuineIntel"; "unknown" if the system does not tell."""
    return _told().get("vendor_id", "unknown")


@cache
def _told() -> dict[str, str]:
    """`vendor_id` and `model name`, where the system has them."""
    try:
        text = CPUINFO.read_text()
    except OSError:
        return {}
    return dict(re.findall(r"^(vendor_id|model name)\s*:\s*(.*)$", text, re.MULTILINE))
