"""Where a rank that must end leaves its last words, so that the leader can name it: text in a
key-value store of torch.

On one machine the store listens on the loopback. It holds text that is shown, and nothing that is
ever run.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from distcore_horovod.addresses import shared_address
from distcore_horovod.processes import is_gone

STOPPING = "stopping"
SECONDS = 2.0
"""How long the leader looks for who ended before it says that it does not know."""


class ErrorChannel:
    """store: the key-value store; None: nobody leaves words. hosts, processes: of every rank."""

    def __init__(self, store: Any, rank: int, hosts: list[str], processes: list[int]) -> None:
        self._store, self._rank, self._hosts, self._processes = store, rank, hosts, processes

    @classmethod
    def open(cls, hvd: Any, rank: int, hosts: list[str], processes: list[int]) -> ErrorChannel:
        """Rank 0 serves, and tells the others where, through Horovod (hvd)."""
        from torch.distributed import TCPStore

        wait = timedelta(seconds=60)
        store = None
        address = ("", 0)
        if rank == 0:
            name = shared_address(hosts)
            listener = socket.create_server((name, 0))
            address = (name, listener.getsockname()[1])
            store = TCPStore(
                name, address[1], is_master=True, timeout=wait, wait_for_workers=False,
                master_listen_fd=listener.detach(), use_libuv=True,
            )  # fmt: skip
        host, port = hvd.broadcast_object(address, root_rank=0, name="distcore.errors")
        if store is None:
            store = TCPStore(host, port, is_master=False, timeout=wait, wait_for_workers=False)
        return cls(store, rank, hosts, processes)

    def leave(self, words: str) -> None:
        """Say what this rank ends with; the first to speak is heard."""
        if self._store is None:
            return
        with suppress(Exception):  # the leader may be gone
            self._store.compare_set("first", "", f"{self._who(self._rank)} ended: {words}")

    def reason(self, ended: bool = False) -> str:
        """Who ended, as far as it is known; for the leader. ended: the launcher asked it to end,
        and will not wait."""
        known = self.cause(SECONDS / 4 if ended else SECONDS)
        if known is None:
            known = (
                "the launcher asked for it"
                if ended
                else f"{self._elsewhere()} has ended, or is not reached"
            )
            return f"{known}; the launcher's own lines say more."
        return known

    def cause(self, seconds: float) -> str | None:
        """What a rank said before it ended, or which one is gone without a word; None: neither
        within that time."""
        until = time.monotonic() + seconds
        while True:
            with suppress(Exception):
                if self._store is not None and self._store.check([STOPPING]):
                    return None
                if self._store is not None and self._store.check(["first"]):
                    return str(self._store.get("first").decode()).rstrip(".") + "."
            gone = self.gone()
            if gone or time.monotonic() > until:
                return gone
            time.sleep(0.05)

    def gone(self) -> str | None:
        """Which ranks of this machine are no more, as far as their processes tell; None: none."""
        gone = [rank for rank in range(len(self._hosts)) if self._gone(rank)]
        verb = "has" if len(gone) == 1 else "have"
        who = ", ".join(map(self._who, gone))
        return f"{who} {verb} ended without a word (killed, or out of memory?)." if gone else None

    def stops(self) -> None:
        """This rank ends because it was asked to: none that is gone from now on is to blame."""
        if self._store is not None:
            with suppress(Exception):  # the leader may be gone
                self._store.set(STOPPING, "")

    def speaks_for_the_leader(self) -> bool:
        """Whether the leader's process, on this machine, is gone, and this rank is the first of
        those that are left."""
        with suppress(Exception):  # the leader may be gone, and its store with it
            if self._store is not None and self._store.check([STOPPING]):
                return False
        until = time.monotonic() + SECONDS / 2
        while not self._gone(0):
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return all(self._gone(rank) for rank in range(self._rank))

    def _elsewhere(self) -> str:
        """The rank on another machine, or, of several, one of them."""
        others = [rank for rank, host in enumerate(self._hosts) if host != self._hosts[self._rank]]
        if len(others) == 1:
            return self._who(others[0])
        machines = sorted({self._hosts[rank].rpartition("-")[0] for rank in others})
        return f"a rank on {' or '.join(machines)}" if machines else "a rank"

    def _who(self, rank: int) -> str:
        return named(rank, self._hosts[rank], self._processes[rank])

    def _gone(self, rank: int) -> bool:
        """Whether the rank's process on this machine is no more, or is a zombie."""
        if rank == self._rank or self._hosts[rank] != self._hosts[self._rank]:
            return False
        return is_gone(self._processes[rank])


def named(rank: int, host: str, process: int) -> str:
    """A rank as people find it. host: as `meeting.machine` names it."""
    return f"rank {rank} (process {process} on {host.rpartition('-')[0]})"
