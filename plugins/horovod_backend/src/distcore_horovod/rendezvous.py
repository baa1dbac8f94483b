"""How the ranks of any backend's worker group meet in Horovod: by the worker group's own store, and
no launcher.

Through the store (`distcore_torch.training.meeting`) they tell each other their machines; rank 0
starts Horovod's rendezvous server, and it is gone again when all have met. Nothing of an earlier
attempt is found: the server is new, and so are the store's keys.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distcore_core.contracts import Rank
from distcore_core.errors import TrainingError, UserError
from distcore_horovod.addresses import LOOPBACK, reached_address, towards
from distcore_horovod.launcher import IN_GROUP
from distcore_torch.training import meeting


@dataclass(frozen=True)
class Place:
    """Where a rank runs. host: the same for ranks of one machine. address: how other machines
    reach it."""

    host: str
    address: str


def join(
    rank: Rank, *, allow_network: bool = False, fusion_threshold_mb: int | None = None
) -> None:
    """hvd.init() with the group's ranks. Raises UserError if they are on several machines and
    may not be."""
    import horovod.torch as hvd
    import torch

    store = meeting.fresh_store(rank)
    places = _exchanged(store, rank, Place(meeting.machine(), _address()))
    local = len({each.host for each in places}) == 1
    if not local and not allow_network:
        raise UserError(
            f"The ranks are on {len({each.host for each in places})} machines, and Horovod's "
            "rendezvous is not authenticated: whoever reaches its port can join. On a network you "
            "trust, set backend.trainer.allow_network: true; else choose backend.trainer "
            "data_parallel."
        )
    settings = slot(rank, [each.host for each in places])
    settings["HOROVOD_GLOO_IFACE"] = (
        "lo" if local and Path("/sys/class/net/lo").exists() else interface(places, rank)
    )
    if fusion_threshold_mb is not None:
        settings["HOROVOD_FUSION_THRESHOLD"] = str(fusion_threshold_mb << 20)
    with _server(rank, places[0].address if not local else LOOPBACK) as address:
        settings["HOROVOD_GLOO_RENDEZVOUS_ADDR"], port = _told(store, address)
        settings["HOROVOD_GLOO_RENDEZVOUS_PORT"] = str(port)
        os.environ.update(settings)
        hvd.init()
        hvd.allgather(torch.zeros(1), name="distcore.met")  # nobody needs the server any more
    if hvd.size() != rank.world or hvd.rank() != rank.index:
        raise TrainingError(
            f"Horovod says rank {hvd.rank()} of {hvd.size()}, but this is rank {rank.index} of "
            f"{rank.world}. Report this."
        )


def leave() -> None:
    """hvd.shutdown(), and none of our variables left for children of this process."""
    import horovod.torch as hvd

    hvd.shutdown()
    if os.environ.pop(IN_GROUP, None) is not None:
        for name in [name for name in os.environ if name.startswith("HOROVOD_")]:
            del os.environ[name]


def slot(rank: Rank, hosts: list[str]) -> dict[str, str]:
    """Horovod's variables of a rank: its place among all, on its machine, and among the
    machines."""
    order = list(dict.fromkeys(hosts))
    mine = hosts[rank.index]
    local_rank = hosts[: rank.index].count(mine)
    across = [host for host in order if hosts.count(host) > local_rank]
    return {
        IN_GROUP: "1",
        "HOROVOD_HOSTNAME": mine,
        "HOROVOD_RANK": str(rank.index),
        "HOROVOD_SIZE": str(rank.world),
        "HOROVOD_LOCAL_RANK": str(local_rank),
        "HOROVOD_LOCAL_SIZE": str(hosts.count(mine)),
        "HOROVOD_CROSS_RANK": str(across.index(mine)),
        "HOROVOD_CROSS_SIZE": str(len(across)),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "300",
    }


def interface(places: list[Place], rank: Rank) -> str:
    """The network interface that this rank's address belongs to."""
    mine = places[rank.index].address
    found = meeting.interface_of(mine)
    if found is None:
        raise UserError(
            f"No network interface here has the address {mine}. Set HOROVOD_GLOO_IFACE, or use "
            "trainer data_parallel."
        )
    return found


# ------------------------------------------------------------------ inside


def _address() -> str:
    """The address of this machine that the ranks' meeting point sees, unless that is reached over
    the loopback, by the name that only others know otherwise."""
    master = os.environ.get(
        "MASTER_ADDR", LOOPBACK
    )  # a worker group of this machine meets in a file
    found = towards(master)
    if found is None or (found.startswith("127.") and not meeting.is_loopback(master)):
        return reached_address()
    return found


def _exchanged(store: Any, rank: Rank, place: Place) -> list[Place]:
    """Every rank's place, in rank order."""
    store.set(f"place-{rank.index}", json.dumps([place.host, place.address]))
    return [Place(*json.loads(store.get(f"place-{each}"))) for each in range(rank.world)]


def _told(store: Any, address: tuple[str, int] | None) -> tuple[str, int]:
    """The server's address and port: told by rank 0 to all."""
    if address is not None:
        store.set("server", json.dumps(address))
    host, port = json.loads(store.get("server"))
    return host, port


@contextmanager
def _server(rank: Rank, address: str) -> Iterator[tuple[str, int] | None]:
    """Horovod's rendezvous server, in rank 0, on this address alone; None in the others."""
    if rank.index:
        yield None
        return
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    server = RendezvousHTTPServer((address, 0), RendezvousHandler, 0)
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, args=(0.05,), name="distcore-rendezvous", daemon=True
    )
    thread.start()
    try:
        yield address, server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
