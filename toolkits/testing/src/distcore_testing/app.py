"""The app, for suites that look at a whole run: if core and the toolkits alone are installed,
they are skipped."""

from __future__ import annotations

from typing import Any

import pytest


def app() -> Any:
    """The package `distcore`."""
    return pytest.importorskip("distcore", reason="a whole run needs `pip install distcore`")
