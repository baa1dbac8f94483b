"""How much work something is, in calls: what holds on any machine, where seconds do not."""

from __future__ import annotations

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
