"""Independent tasks over the cluster: results in order, few under way at a time, lost ones run
again."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from distcore_core.errors import DistcoreError
from distcore_ray.pulse import PULSE_SECONDS, Pulse, is_lost
from distcore_ray.shipping import Place, packed, unpacked

T = TypeVar("T")

LOST = 3
"""How often a task whose process or node died is run again."""

AHEAD = 2
"""Tasks under way for each CPU: one that runs and one that waits; results that nobody has taken
are no more."""

TOLD_SECONDS = 20.0
"""How long no node may be there that runs tasks before that is said."""

log = logging.getLogger("distcore")


def run(
    function: Callable[[Any], T], items: Sequence[Any], cpus: int, patience: float
) -> Iterator[T]:
    """function(item) for each item as Ray tasks; results in the order of the items.

    patience: seconds without a node that runs tasks after which to give up.
    Raises what the first failing task raised, or DistcoreError if tasks were lost again and
    again, no node was left for them, or a part of Ray is gone."""
    task = ray.remote(max_retries=LOST)(_call)
    shared = ray.put((Place.here(), packed(function)))
    waiting, pulse = iter(items), Pulse.of_this_process("The work")
    under_way: deque[Any] = deque()
    try:
        for item in islice(waiting, AHEAD * max(1, cpus)):
            under_way.append(task.remote(shared, packed(item)))
        while under_way:
            _wait_for(under_way[0], pulse, patience)
            value = _result(under_way[0])
            under_way.popleft()
            for item in islice(waiting, 1):
                under_way.append(task.remote(shared, packed(item)))
            yield value
    finally:
        if not is_lost():
            for reference in under_way:
                ray.cancel(reference)


def _call(shared: tuple[Place, bytes], item: bytes) -> Any:
    place, function = shared
    place.enter()
    return unpacked(function)(unpacked(item))


def _wait_for(reference: Any, pulse: Pulse, patience: float) -> None:
    """Wait until the result is here. Ray itself would wait for a node for ever, and end this
    process if a part of it were gone.

    Not in the main thread: there Ray makes a KeyboardInterrupt of its own of a signal's `Stopped`,
    which counts as swallowed and comes a second time, into what cleans up after the first."""
    since, told = time.monotonic(), False
    while not pulse.during(lambda: ray.wait([reference], timeout=PULSE_SECONDS)[0]):
        pulse.feel()
        if any(each["Alive"] and each["Resources"].get("CPU") for each in pulse.during(ray.nodes)):
            since, told = time.monotonic(), False
            continue
        waited = time.monotonic() - since
        if waited > patience:
            raise DistcoreError(
                f"The Ray cluster {pulse.address} had no node with CPUs for {patience:.0f} s, so "
                "nothing ran there. Look at its nodes (`ray status`), add some, or raise "
                "backend.patience; nothing that was finished is lost."
            )
        if waited > TOLD_SECONDS and not told:
            told = True
            log.warning(
                "No node of the Ray cluster %s that runs tasks is alive any more: waiting for one "
                "that joins it, up to %.0f s (backend.patience).",
                *(pulse.address, patience),
            )


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
