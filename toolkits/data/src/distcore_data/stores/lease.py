"""Show others that a process is at work on something in a store, and wait while another one is.

Nothing depends on a lease: it saves work, and a conditional put decides. Who holds one changes its
object every BEAT seconds; who waits watches by its own clock whether it still changes, so machines
need not agree on the time. Who was paused, or cut off from the store, may find that another one
holds it, and leaves it to them.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress

from distcore_core.errors import StoreError
from distcore_data.seals import parse_json
from distcore_data.stores import Store
from distcore_data.stores.store import read_if_there

BEAT = 5.0
"""Seconds between two changes of a lease that is held."""

PATIENCE = 30.0
"""Seconds without a change after which its holder counts as dead."""

LOOK = 1.0
"""Seconds between two looks of who waits."""

FAILED = (StoreError, OSError)
"""What a store raises; the latter is a folder's."""


def now() -> float:
    """Seconds, by a clock that goes on while a machine sleeps, and that nobody sets."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def held_by(content: bytes) -> str:
    """The `Lease.id` that the bytes of a lease tell; "" if they tell none."""
    try:
        return str(parse_json(content)["id"])
    except (ValueError, KeyError, TypeError):
        return ""


def is_lost(store: Store, name: str, mine: str) -> bool:
    """Whether another one took the lease with the `Lease.id` for dead, and holds it or is done. Of
    one that is gone its holder is waited for, who writes it again if somebody deleted it."""
    until = time.monotonic() + 2 * BEAT
    while not (found := read_if_there(store, name) or b"") and time.monotonic() < until:
        time.sleep(LOOK)
    return held_by(found) != mine


def alive(store: Store, names: Iterable[str]) -> set[str]:
    """Which of these leases change within two beats: somebody lives who holds them.

    Raises:
        StoreError: The store cannot be read.
    """
    waiting = {name: read_if_there(store, name) or b"" for name in names}
    waiting = {name: content for name, content in waiting.items() if content}
    found: set[str] = set()
    until = time.monotonic() + 2 * BEAT
    while waiting and time.monotonic() < until:
        time.sleep(LOOK)
        for name, before in list(waiting.items()):
            after = read_if_there(store, name) or b""
            if after != before:
                del waiting[name]
                found |= {name} if after else set()
    return found


class Heartbeat:
    """A thread that writes an object again and again, so that others see that this process lives.

    content(n): the bytes of the n-th change, from 1. every: seconds between two. ends: asked before
        each, whether there are to be no more.

    Attributes:
        last: When the last change that was made was begun, by `now`; its holder sets it before.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        content: Callable[[int], bytes],
        every: float,
        ends: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store, self._name, self._content, self._every = store, name, content, every
        self._ends = ends
        self.last = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="distcore-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """The last change is made when this returns. False: there was none to stop."""
        if not self._thread.is_alive():
            return False
        self._done.set()
        self._thread.join()
        return True

    def _beat(self) -> None:
        beat = 0
        while not self._done.wait(self._every):
            beat, begun = beat + 1, now()
            with suppress(*FAILED):  # others may take us for dead, which must do no harm
                if self._ends():
                    return
                if now() - begun > PATIENCE:  # it was paused since it looked
                    continue
                self._store.write(self._name, self._content(beat))
                self.last = begun


class Lease:
    """`with Lease(store, name) as lease: lease.acquire(…)`; let go of at the end, if it was
    acquired."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self.id = uuid.uuid4().hex
        self._heart = Heartbeat(store, name, self._content, BEAT, self._is_lost)

    def acquire(self, until: Callable[[], bool], on_wait: Callable[[], None]) -> bool:
        """Hold the lease, after whoever holds it now; False as soon as `until()`, asked while
        waiting, is true.

        Which holder lives is seen within PATIENCE seconds: see `acquire_from_the_dead`.

        on_wait: called once before waiting. Raises StoreError if the store cannot decide who
            holds it."""
        seen, since, waited, taken = b"", time.monotonic(), False, False
        while not self._create(0) or (taken and self._is_taken()):
            if until():
                return False
            if not waited:
                on_wait()
                waited = True
            found = self._found()
            if found != seen:
                seen, since = found, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                self.store.delete([self.name])
                taken = True
                continue
            time.sleep(LOOK)
        self._prove()
        self._heart.start()
        return True

    def acquire_from_the_dead(self, on_wait: Callable[[], None]) -> bool:
        """Hold the lease unless somebody alive holds it, which may take PATIENCE seconds to see.
        Raises StoreError."""
        seen: set[bytes] = set()

        def alive() -> bool:
            seen.add(self._found())
            return len(seen - {b""}) > 1

        return self.acquire(alive, on_wait)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        if self._heart.stop():
            with suppress(*FAILED):  # it stops changing, which says the same
                if not self._is_lost():
                    self.store.delete([self.name])

    # -------------------------------------------------------------- inside

    def _create(self, beat: int) -> bool:
        self._heart.last = now()
        return self.store.create(self.name, self._content(beat))

    def _content(self, beat: int) -> bytes:
        who = {"id": self.id, "host": socket.gethostname(), "process": os.getpid(), "beat": beat}
        return json.dumps(who).encode()

    def _found(self) -> bytes:
        return read_if_there(self.store, self.name) or b""

    def _is_taken(self) -> bool:
        """Whether what was made in the place of a dead lease is gone again: another one that had
        seen the dead one may have deleted it for that, and made its own."""
        time.sleep(LOOK)
        with suppress(*FAILED):  # the heartbeat looks again
            return held_by(self._found()) != self.id
        return False

    def _is_lost(self) -> bool:
        """Also if the lease is gone, and this process did nothing for so long that another one may
        have taken it for dead, and been done since."""
        found = self._found()
        if not found:
            return now() - self._heart.last > PATIENCE
        return held_by(found) != self.id

    def _prove(self) -> None:
        """Some stores take a conditional put and ignore its condition: the name is taken, so
        this one must fail. Once it may not: another one that waits may have deleted the lease,
        which it takes for that of the dead."""
        if self._create(-1) and self._create(-2):
            with suppress(*FAILED):
                if held_by(self._found()) == self.id:
                    self.store.delete([self.name])
            raise StoreError(
                f"The store at {self.store.url} ignores the condition of a put (If-None-Match), so "
                "that two processes at one work could not be told apart. Nothing was built. Use a "
                "store that keeps it (S3 itself, Google's, Azure's, MinIO), or a folder."
            )
