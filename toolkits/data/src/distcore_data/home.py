"""The user's own folders."""

from __future__ import annotations

import os


def cache_home() -> str:
    """Where programs keep what they can make again: `$XDG_CACHE_HOME`, else `~/.cache`."""
    return os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
