"""The user's own folders."""

from __future__ import annotations

import os


def cache_home() -> str:
    """Where programs keep what they can make again: `$XDG_CACHE_HOME`, else `~/.cache`. A relative
    one is ignored, as the XDG rule asks: it would be another folder in every folder."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return named if os.path.isabs(named) else os.path.join(os.path.expanduser("~"), ".cache")
