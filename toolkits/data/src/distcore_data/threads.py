"""How many processors there are, and how torch's threads wait for one another if others use them
too."""

from __future__ import annotations

import os

SPINS = 1000
"""Turns of the loop in which an idle thread of OpenMP (GNU's, which torch brings) waits before it
sleeps: some ten microseconds, the pause between two operators. Its default, a few milliseconds,
makes a step three to eight times slower if another program wants one of the processors: the
waiting thread holds the processor that the late one needs."""


def processors() -> int:
    """How many this process may use. macOS does not say, so there it is all of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def patient_threads() -> None:
    """Let waiting threads give way. To be called before torch is imported; what the user has set
    stays."""
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
