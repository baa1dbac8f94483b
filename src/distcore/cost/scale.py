"""What a step costs among many workers: a model of bytes, messages and latency of the collectives
that are really used.

- not exact: an all-reduce of all gradients over a ring, 2(N - 1) messages of 1/N of the bytes one
  after another;
- exact: every rank sends the others their slices of each of its branches (an all-to-all of N - 1
  messages), adds along the tree, and gathers the slices (a ring of N - 1 messages).

Gradients are summed after the whole backward pass (`FlatStrategy`), so nothing of it is hidden
behind computing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from distcore.cost.constants import Constants
from distcore_core.contracts import Rank

MOST_WORKERS = 4096


@dataclass(frozen=True)
class Scale:
    """How many workers to say the cost of, and the network between them.

    bandwidth: bytes a second that a rank sends; None: what was measured over the loopback.
    latency: seconds a message; None: likewise.
    """

    workers: int
    bandwidth: float | None = None
    latency: float | None = None


@dataclass(frozen=True)
class Traffic:
    """What one rank sends in a step: bytes and messages, these one after another."""

    bytes: float
    messages: int

    def seconds(self, message: float, byte: float) -> float:
        """Of a network."""
        return self.messages * message + self.bytes * byte


def ring(workers: int, size: int) -> Traffic:
    """Of an all-reduce of `size` bytes."""
    hops = 2 * (workers - 1)
    return Traffic(hops * size / workers, hops)


def sliced_tree(workers: int, parts: int, size: int) -> Traffic:
    """Of exact training's exchange of `size` bytes, for the rank that sends most."""
    if workers == 1:
        return Traffic(0.0, 0)
    most = max(_branches(workers, parts))
    others = workers - 1
    return Traffic((most + 1) * others * size / workers, 2 * others)


def _branches(workers: int, parts: int) -> Iterator[int]:
    """How many branches of the tree of parts each rank lays."""
    from distcore_torch.sampler import share
    from distcore_torch.training.exact.tree import branches

    for index in range(workers):
        yield len(branches(share(Rank(index=index, world=workers), parts)))


def workers_up_to(most: int) -> list[int]:
    """1, 2, 4, … up to `most`, and that."""
    found = [1 << power for power in range(most.bit_length()) if 1 << power <= most]
    return found if most in found else [*found, most]


def step_seconds(
    computing: float, traffic: Traffic, constants: Constants, scale: Scale
) -> tuple[float, float]:
    """(seconds of a step, of which for communication). computing: seconds of a rank's own work."""
    message = constants.message if scale.latency is None else scale.latency
    byte = constants.sent_byte if scale.bandwidth is None else 1 / scale.bandwidth
    talking = traffic.seconds(message, byte)
    return computing + talking, talking
