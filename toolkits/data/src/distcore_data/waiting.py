"""The wait for an engine's tasks, in which a signal comes as it is, and what is wrong with the
engine's cluster is seen.

An engine's own calls wait for a cluster that is gone, or for a node that nobody adds. Who knows the
cluster watches it: the backend whose it is, also where a processor's tasks run there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")

LOOK_SECONDS = 1.0
"""How long an answer is waited for before it is asked what is wrong."""

watches: list[Callable[[], Callable[[], None]]] = []
"""Of the clusters that this process is connected to, the latest last: each makes what is called
again and again in one wait, and raises where there is nothing to wait for."""


def until(is_done: Callable[[], bool]) -> None:
    """Wait until an engine says so. Raises what it raises, and what the cluster's watch does.

    is_done: waits a second or so. It is called in a thread of its own: Ray makes a
    KeyboardInterrupt of its own of a signal's `Stopped` where it waits in the main thread; that
    counts as swallowed and comes a second time, into what cleans up after the first."""
    look = watches[-1]() if watches else _nothing
    done = False
    while not done:
        answer = in_thread(is_done)
        while not wait([answer], LOOK_SECONDS).done:
            look()
        done = answer.result()
        if not done:
            look()


def in_thread(call: Callable[[], T]) -> Future[T]:
    """What a call gives or raises, which may wait for ever: nothing waits for its thread."""
    answer: Future[T] = Future()

    def ask() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again by who asks
            answer.set_exception(error)

    threading.Thread(target=ask, name="distcore-ask", daemon=True).start()
    return answer


def _nothing() -> None:
    """No backend watches a cluster."""
