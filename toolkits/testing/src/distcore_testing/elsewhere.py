"""A script in a Python process with other hashes."""

from __future__ import annotations

import os
import subprocess
import sys


def said_elsewhere(script: str, *words: str, given: str = "") -> str:
    """What a script prints in another process, which has another PYTHONHASHSEED and finds the
    modules that this one finds.

    Args:
        script: Python.
        words: Its arguments.
        given: Its standard input.
    """
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
