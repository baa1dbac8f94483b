"""Independent tasks over processes of this machine: results in order, few under way at a time,
lost ones run again."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from distcore_core.errors import DistcoreError
from distcore_data.travelling import travelling
from distcore_torch.training import parents

T = TypeVar("T")

LOST = 3
"""How often a task whose process died is run again."""

AHEAD = 2
"""Tasks under way for each process: one that runs and one that waits; results that nobody has
taken are no more."""


def run(function: Callable[[Any], T], items: Sequence[Any], workers: int) -> Iterator[T]:
    """function(item) for each item; results in the order of the items, the first error raised.

    Raises:
        DistcoreError: Processes died again and again before the next result came.
    """
    waiting = deque(items)
    under_way: deque[tuple[Any, Future[T]]] = deque()
    lost = 0
    pool = _pool(function, workers)
    try:
        while waiting or under_way:
            try:
                for place, (item, future) in enumerate(under_way):
                    if _was_lost(future):
                        under_way[place] = item, pool.submit(_call, item)
                while waiting and len(under_way) < AHEAD * workers:
                    under_way.append((waiting[0], pool.submit(_call, waiting[0])))
                    waiting.popleft()
                value = under_way[0][1].result()
            except BrokenProcessPool as error:
                lost += 1
                if lost > LOST:
                    raise DistcoreError(
                        f"The processes of a task died {lost} times before it was done. Look "
                        "whether this machine ran out of memory; nothing that was finished is lost."
                    ) from error
                pool.shutdown(cancel_futures=True)
                pool = _pool(function, workers)
                continue
            under_way.popleft()
            lost = 0
            yield value
    finally:
        pool.shutdown(cancel_futures=True)


def _was_lost(future: Future[Any]) -> bool:
    """Whether the task ended with its pool; else it has not ended, has a result, or raised."""
    return future.done() and isinstance(future.exception(), BrokenProcessPool)


def _pool(function: Callable[[Any], Any], workers: int) -> ProcessPoolExecutor:
    # A fork would carry over threads' locks; spawn starts clean. The function travels once to each
    # process.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(
        workers, mp_context=context, initializer=_begin, initargs=(function, os.getpid())
    )


_function: list[Callable[[Any], Any]] = []
"""In a process of the pool: what it runs."""


def _begin(function: Callable[[Any], Any], parent: int) -> None:
    parents.follow(parent)
    _function[:] = [function]


def _call(item: Any) -> Any:
    with travelling():
        return _function[0](item)
