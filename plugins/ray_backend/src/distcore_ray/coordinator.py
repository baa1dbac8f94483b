"""Where a worker group and its driver leave word for each other: a small actor beside the
driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from distcore_core.progress import Round
from distcore_ray import pulse
from distcore_torch.training.progress_channel import Numbers

log = logging.getLogger("distcore")


@dataclass(frozen=True)
class Seat:
    """Where a rank runs. group: the attempt it belongs to. node: Ray's id; host: its address;
    pid: of the rank."""

    group: str
    rank: int
    world: int
    node: str
    host: str
    pid: int


@dataclass(frozen=True)
class Failure:
    """How a rank ended. died: it was killed or exited; else it raised. error: what it raised, as
    `shipping.packed` bytes (the driver alone need be able to import it), if another attempt would
    meet it. cause: what the system said, if a disk or a limit is to blame."""

    seat: Seat
    how: str
    died: bool
    error: bytes | None = None
    cause: OSError | None = None


@dataclass
class News:
    """What the driver has not heard yet, but for `seats` and `failures`, which are all of them.

    rounds: how many evaluation rounds were told; `Coordinator.rounds_from` gives them.
    stopped: the ranks ended because the user asked. results: of a group whose ranks have all ended,
    in rank order, as `shipping.packed` bytes (None of a rank that was stopped)."""

    numbers: Numbers | None = None
    rounds: int = 0
    logs: list[tuple[int, str]] = field(default_factory=list)
    seats: list[Seat] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    stopped: bool = False
    results: list[Any] | None = None

    def pass_on(self) -> None:
        """Log what the ranks logged. Each line is told once, to whoever asks first; so whoever
        asks passes it on."""
        for level, text in self.logs:
            log.log(level, "%s", text)


class Coordinator:
    """The actor. Ranks ask it whether to go on; the driver asks it for news."""

    def __init__(self) -> None:
        self.numbers: Numbers | None = None
        self.rounds: list[Round] = []
        self.logs: list[tuple[int, str]] = []
        self.seats: list[Seat] = []
        self.failures: list[Failure] = []
        self.results: dict[str, dict[int, Any]] = {}
        self.stop_asked = self.stopped = self.abandoned = False

    def sit(self, seat: Seat) -> bool:
        """A rank starts; False: it is not to (nobody waits, or a rank raised what a restart
        would meet again)."""
        if self.abandoned or any(each.error is not None for each in self.failures):
            return False
        self.seats.append(seat)
        return True

    def tell(
        self, seat: Seat, numbers: Numbers | None, logs: list[tuple[int, str]], rounds: list[Round]
    ) -> tuple[bool, bool]:
        """What a rank says; (whether to stop at the next step, whether to leave at once)."""
        if numbers is not None and self.seats and seat.group == self.seats[-1].group:
            self.numbers = numbers
        self.logs += logs
        self.rounds += rounds
        return self.stop_asked, self.abandoned

    def done(self, seat: Seat, value: Any, stopped: bool) -> None:
        """A rank ended well, or because it was asked to stop."""
        self.stopped |= stopped
        self.results.setdefault(seat.group, {})[seat.rank] = value

    def fail(self, failure: Failure) -> None:
        """A rank did not end well."""
        self.failures.append(failure)

    def news(self) -> News:
        """For the driver."""
        told, self.logs = self.logs, []
        return News(
            self.numbers,
            len(self.rounds),
            told,
            self.seats,
            self.failures,
            self.stopped,
            self._complete(),
        )

    def rounds_from(self, first: int) -> list[Round]:
        """The evaluation rounds from this one on, counted from 0."""
        return self.rounds[first:]

    def stop(self) -> None:
        """The user asks for a checkpoint and the end."""
        self.stop_asked = True

    def abandon(self) -> None:
        """Nobody waits any more."""
        self.abandoned = True

    def _complete(self) -> list[Any] | None:
        if not self.seats:
            return None
        last = self.seats[-1]
        found = self.results.get(last.group, {})
        return [found[rank] for rank in range(last.world)] if len(found) == last.world else None


@contextmanager
def open_coordinator() -> Iterator[Any]:
    """The actor's handle, on this node, until the block ends."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    remote: Any = ray.remote
    coordinator = remote(num_cpus=0, scheduling_strategy=here)(Coordinator).remote()
    try:
        yield coordinator
    finally:
        if not pulse.is_lost():
            ray.kill(coordinator)


class Following:
    """Calls `heard(news)` a few times a second in a thread of its own until it is closed, and
    once more then."""

    SECONDS, ANSWER_SECONDS = 0.25, 60.0

    def __init__(self, coordinator: Any, heard: Any) -> None:
        self._coordinator, self._heard = coordinator, heard
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._follow, name="distcore-coordinator", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Hear what is left."""
        self._over.set()
        if not pulse.is_lost():
            self._thread.join()

    def _follow(self) -> None:
        while True:
            last = self._over.wait(self.SECONDS)
            try:
                news = self._answer(self._coordinator.news.remote())
                if news is None:
                    return
                self._heard(news)
            except ray.exceptions.GetTimeoutError:
                pass  # the machine is busy
            except (
                ray.exceptions.RayError
            ):  # the cluster went: whoever waits for the worker group is told
                return
            if last:
                return

    def _answer(self, asked: Any) -> Any:
        """Waited for until it comes, as lines of the log are told once; once all is over, not for
        long: then None."""
        while True:
            try:
                return ray.get(asked, timeout=self.ANSWER_SECONDS)
            except ray.exceptions.GetTimeoutError:
                if self._over.is_set():
                    return None
