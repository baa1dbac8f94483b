"""How much work something is, in calls, which hold on any machine, where seconds do not; and what
it leaves open."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any


def calls(work: Callable[[], Any]) -> int:
    """How many functions, and turns of generators, the work takes in this thread."""
    found = 0

    def count(*_: Any) -> None:
        nonlocal found
        found += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def descriptors() -> int:
    """How many files this process has open."""
    return len(os.listdir("/proc/self/fd"))
