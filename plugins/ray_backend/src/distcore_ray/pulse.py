"""Whether the parts of a Ray cluster that this process depends on are there."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import Any, TypeVar

from distcore_core.errors import TrainingError
from distcore_data.waiting import in_thread
from distcore_ray.address import connection

PULSE_SECONDS = 1.0
"""How long a connection may take when a part is felt, and how often that is done while Ray is
asked something."""

HEAD_SECONDS = 45.0
"""How long the head of another's cluster may be gone; Ray ends this process after 60."""

T = TypeVar("T")


class Lost(TrainingError):
    """A part of the cluster is gone that this process cannot do without; Ray ends the process
    for it a while later."""


@dataclass
class Pulse:
    """Whether the parts of Ray that this process depends on are there: asked a few times a second.

    Ray's native library waits for them (gcs_server 60 seconds, raylet some ten) and then ends the
    process without a word of Python's. One of a cluster of ours does not come back; another's
    head may (KubeRay starts it again).

    Attributes:
        address: The cluster's, for the message.
        parts: The `host:port` that each part listens at.
        patience: For how many seconds nothing may listen there.
        work: What stops if one is gone, for the message.
    """

    address: str
    parts: dict[str, str]
    patience: dict[str, float]
    work: str = "Training"
    _refused: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of_this_process(cls, work: str = "Training") -> Pulse:
        """The pulse of the cluster that this process is connected to."""
        from ray._private import worker

        node: Any = worker._global_node
        address = str(node.gcs_address)
        parts = {"gcs_server": address}
        if node.node_manager_port:
            parts["raylet"] = f"{node.node_ip_address}:{node.node_manager_port}"
        patience = {"gcs_server": 0.0 if node.is_head() else HEAD_SECONDS, "raylet": 0.0}
        return cls(address, parts, patience, work)

    def feel(self) -> None:
        """Raise Lost, naming the part, if nothing listens at its port any more."""
        now = time.monotonic()
        for part, address in self.parts.items():
            if not _refused(address):
                self._refused.pop(part, None)
            elif now - self._refused.setdefault(part, now) >= self.patience[part]:
                _lost.append(part)
                raise Lost(
                    f"{self.work} stopped: the {part} of the Ray cluster {self.address} is gone "
                    f"(nothing listens at {address} any more; it or a process that it depends on "
                    "was killed, or out of memory?)."
                )

    def during(self, call: Callable[[], T]) -> T:
        """What a call of Ray's gives: one that waits for a part that is gone would wait until the
        process is ended, so it waits in a thread, and the pulse is felt here. Raises what the call
        raises, and Lost."""
        answer = in_thread(call)
        while not wait([answer], PULSE_SECONDS).done:
            self.feel()
        return answer.result()


_lost: list[str] = []
"""Parts that were found to be gone: Ray's own calls would wait for them."""


def is_lost() -> bool:
    """Whether the cluster that this process is connected to is of no use any more."""
    return bool(_lost)


def begin() -> None:
    """Another cluster is joined or started."""
    _lost.clear()


def _refused(address: str) -> bool:
    try:
        connection(address, PULSE_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:  # too busy to say; whoever is gone refuses
        return False
    return False
