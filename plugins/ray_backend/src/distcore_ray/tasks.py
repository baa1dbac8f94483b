"""Independent tasks over the cluster: results in order, few under way at a time, lost ones run
again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from distcore_core.errors import DistcoreError
from distcore_data.travelling import travelling
from distcore_data.waiting import until
from distcore_ray.pulse import PULSE_SECONDS, is_lost
from distcore_ray.shipping import Place, packed, packed_result, unpacked

T = TypeVar("T")

LOST = 3
"""How often a task whose process or node died is run again."""

AHEAD = 2
"""Tasks under way for each CPU: one that runs and one that waits; results that nobody has taken
are no more."""


def run(function: Callable[[Any], T], items: Sequence[Any], cpus: Callable[[], int]) -> Iterator[T]:
    """function(item) for each item as Ray tasks; results in the order of the items.

    cpus(): what the cluster has now, which may grow.
    Raises what the first failing task raised, DistcoreError if tasks were lost again and again,
    and what the backend's watch does."""
    task = ray.remote(max_retries=LOST)(_call)
    shared = ray.put((Place.here(), packed(function)))
    waiting = iter(items)
    under_way: deque[Any] = deque()
    many, counted = cpus(), time.monotonic()

    def begin() -> None:
        for item in islice(waiting, max(0, AHEAD * max(1, many) - len(under_way))):
            under_way.append(task.remote(shared, packed(item)))

    def has_come() -> bool:
        nonlocal many, counted
        if time.monotonic() - counted > PULSE_SECONDS:
            many, counted = cpus(), time.monotonic()
        return bool(ray.wait([under_way[0]], timeout=PULSE_SECONDS)[0])

    try:
        begin()
        while under_way:
            until(has_come)
            value = _result(under_way[0])
            under_way.popleft()
            begin()
            yield value
    finally:
        # Whoever holds an error's traceback holds this generator, beyond the end of the cluster:
        # Ray would start another one to cancel there what is gone.
        if ray.is_initialized() and not is_lost():
            for reference in under_way:
                ray.cancel(reference)


def _call(shared: tuple[Place, bytes], item: bytes) -> Any:
    place, function = shared
    place.enter()
    with travelling(packed_result):
        return unpacked(function)(unpacked(item))


def _result(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except RayTaskError as error:
        # Ray's own class of both; a caller that looks for its error must find it, with the task's
        # traceback behind it.
        cause = error.cause
        if isinstance(cause, Exception) and not isinstance(cause, RayError):
            raise cause from error
        raise
    except RayError as error:
        raise DistcoreError(
            f"A task on the Ray cluster was lost {LOST + 1} times: "
            f"{str(error).strip().splitlines()[0]} Look at its nodes (`ray status`, and the memory "
            "they have); nothing that was finished is lost."
        ) from error
