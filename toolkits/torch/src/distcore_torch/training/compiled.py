"""The compiled part, if it was built.

Without a C compiler torch does the same, up to five times as slowly. So nothing but speed depends
on whether one was there when distcore was installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

sums: ModuleType | None
try:
    from distcore_torch.training import _sums as sums
except ImportError:
    sums = None
