"""One rank's process: it runs the worker group's function and tells the process that started it
how that went."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from distcore_core.contracts import Rank
from distcore_core.errors import DistcoreError, RankLost, Stopped
from distcore_data.blame import one_line
from distcore_data.os_errors import system_cause
from distcore_data.profiling import profiled_process
from distcore_data.travelling import portable
from distcore_torch.signals import Stoppable, signal_of
from distcore_torch.training import parents

LOST = (RankLost, RuntimeError, ConnectionError)
"""What a rank raises that waits for one that is gone."""


@dataclass(frozen=True)
class Orders:
    """What a rank is started with. environment: variables of its own. parent: id of the process
    that starts it."""

    rank: Rank
    threads: int
    environment: Mapping[str, str]
    parent: int


@dataclass(frozen=True)
class Told:
    """How a rank ended, in its own words.

    kind: "result", "stopped" (it was asked to) or "raised". value: the result. error: the end that
    it was asked for, or what it raised, if that is one of distcore's. text: of other errors, such
    as `ValueError: what`. cause: what the system said, if a disk or a limit is to blame.
    """

    kind: str
    value: Any = None
    error: BaseException | None = None
    text: str = ""
    trace: str = ""
    cause: OSError | None = None

    @property
    def recurs(self) -> bool:
        """Whether it raised what another attempt would meet again."""
        return getattr(self.error, "recurs", False)


def main(orders: Orders, payload: bytes, words: Connection) -> None:
    """The process. payload: (function, arguments), pickled."""
    parents.die_with(orders.parent)
    # Before torch is imported, which reads some of them once.
    os.environ.update(orders.environment)
    with Stoppable(owns_process=True, to_the_end=True) as stopping:
        told = _run(orders, payload, stopping)
    try:
        words.send(told)
    except Exception as error:  # noqa: BLE001 - whatever pickling does
        text = f"its {told.kind} cannot travel: {type(error).__name__}: {error}"
        words.send(Told("raised", text=text, trace=told.trace))


def _run(orders: Orders, payload: bytes, stopping: Stoppable) -> Told:
    try:
        function, arguments = pickle.loads(payload)  # noqa: S301 - from our own parent
        import torch

        torch.set_num_threads(orders.threads)
        with profiled_process(f"rank {orders.rank.index}", "train"):
            return Told("result", function(orders.rank, *arguments))
    except KeyboardInterrupt as error:
        return Told("stopped", error=Stopped(str(error), signal_of(error)))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - told by the process that waits
        cause = system_cause(error)
        # A lost connection, torch's RuntimeError: the others were to end, too, and are gone.
        if stopping.received and cause is None and isinstance(error, LOST):
            return Told("stopped", error=Stopped("", stopping.received))
        own = portable(error) if isinstance(error, DistcoreError) else None
        return Told(
            "raised",
            error=own,
            text="" if own else one_line(error),
            trace=traceback.format_exc(),
            cause=cause,
        )
