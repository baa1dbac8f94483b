"""How many processors there are, work that threads share, and how torch's threads wait for one
another if others use them too."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

R = TypeVar("R")

CGROUP = Path("/sys/fs/cgroup")

SPINS = 2500
"""Turns of the loop in which an idle thread of OpenMP (GNU's, which torch brings) waits before it
sleeps, longer than in most pauses between two operators. Its default, a few milliseconds, makes a
step three to eight times slower if another program wants one of the processors: the waiting thread
holds the processor that the late one needs. With fewer turns it sleeps in most pauses, and where
waking up takes long a step is a quarter slower."""


def processors(cgroup: Path = CGROUP) -> int:
    """How many this process may use: its affinity (macOS does not say, so there it is all of them),
    and the quota of its container, rounded up."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        # cgroup v2: quota and period in microseconds
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return mine
    return mine if quota == "max" else max(1, min(mine, -(-int(quota) // int(period))))


def patient_threads() -> None:
    """Let waiting threads give way. To be called before torch is imported; what the user has set
    stays."""
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)


def run_all(
    function: Callable[[Any], R],
    items: Sequence[Any],
    threads: int,
    stopping: threading.Event | None = None,
) -> list[R]:
    """[function(item) for item in items], by threads that take the items in order.

    After an error no further item is begun, and the error of the first item in order that failed is
    raised; on any other end (ctrl-C) what is under way is waited for, so that nothing runs on.

    Args:
        function: What is done.
        items: With what, each once.
        threads: How many at most.
        stopping: Set once no further item is begun, so that a function that takes long can look.
    """
    threads = max(1, min(threads, len(items)))
    results: list[Any] = [None] * len(items)
    errors: dict[int, BaseException] = {}
    numbers = iter(range(len(items)))
    lock, stop = threading.Lock(), stopping or threading.Event()

    def work() -> None:
        while not stop.is_set():
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                results[number] = function(items[number])
            except BaseException as error:  # noqa: BLE001 handed to the caller's thread
                errors[number] = error
                stop.set()

    with ThreadPoolExecutor(threads, thread_name_prefix="distcore-rows") as pool:
        try:
            wait([pool.submit(work) for _ in range(threads)])
        finally:
            stop.set()
    if errors:
        raise errors[min(errors)]
    return results


@contextmanager
def sharing(threads: int) -> Iterator[None]:
    """What this thread gives to `spread` in the block is done by so many threads."""
    before = getattr(_shared, "threads", 1)
    _shared.threads = threads
    try:
        yield
    finally:
        _shared.threads = before


def spread(function: Callable[[Any], R], items: Sequence[Any]) -> list[R]:
    """[function(item) for item in items], by as many threads as `sharing` said; by this one alone
    if it said nothing. Raises the error of the first item in order that failed."""
    threads = getattr(_shared, "threads", 1)
    if threads < 2 or len(items) < 2:
        return [function(item) for item in items]
    return run_all(function, items, threads)


_shared = threading.local()
