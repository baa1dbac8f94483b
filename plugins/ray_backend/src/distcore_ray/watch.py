"""What is seen of the cluster while its work is waited for: a prediction's or a
processor's tasks, and a search's trials."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray

from distcore_core.errors import DistcoreError
from distcore_ray.pulse import Pulse

TOLD_SECONDS = 20.0
"""How long no node may be there that runs tasks before that is said."""

log = logging.getLogger("distcore")


def of_this_process(patience: float) -> Callable[[], None]:
    """What to call about once a second while tasks are waited for (see `Watch.look`)."""
    return Watch(Pulse.of_this_process("The work"), patience).look


def runs_work(nodes: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a node of a cluster, as Ray lists them, is alive and has CPUs."""
    return any(each["Alive"] and each["Resources"].get("CPU") for each in nodes)


@dataclass
class Watch:
    """Of one wait. Ray itself would wait for a node for ever, and end this process if a part of it
    were gone.

    Attributes:
        pulse: Of the cluster.
        patience: Seconds without a node that runs tasks after which to give up.
    """

    pulse: Pulse
    patience: float
    _since: float = field(default_factory=time.monotonic)
    _told: bool = False

    def look(self) -> None:
        """Raise Lost if a part of the cluster is gone, and DistcoreError if no node was left for
        too long; that none is left is told once."""
        self.pulse.feel()
        if runs_work(self.pulse.during(ray.nodes)):
            self._since, self._told = time.monotonic(), False
            return
        waited = time.monotonic() - self._since
        if waited > self.patience:
            raise DistcoreError(
                f"The Ray cluster {self.pulse.address} had no node with CPUs for "
                f"{self.patience:.0f} s, so nothing ran there. Look at its nodes (`ray status`), "
                "add some, or raise backend.patience; nothing that was finished is lost."
            )
        if waited > TOLD_SECONDS and not self._told:
            self._told = True
            log.warning(
                "No node of the Ray cluster %s that runs tasks is alive any more: waiting for one "
                "that joins it, up to %.0f s (backend.patience).",
                *(self.pulse.address, self.patience),
            )
