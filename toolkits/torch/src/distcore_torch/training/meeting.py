"""Where the ranks of a worker group meet: a key-value store that nobody else reaches.

Ranks that were started together on one machine meet in a file in a folder that only their user may
enter. Others meet at MASTER_ADDR and MASTER_PORT, which rank 0 listens on, and on no other address
of its machine if that is one of them; torch's own store listens on every interface.

torch is imported where it is used: the process that starts ranks reads a name here, and has no use
for torch.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from distcore_core.contracts import Rank
from distcore_core.errors import TrainingError

STORE = "DISTCORE_STORE"
"""Environment variable: the file in which the ranks of one attempt of a worker group meet."""

TIMEOUT = timedelta(minutes=5)
"""How long a rank waits for what another one writes into the store."""

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""Environment variables: the network interface on which gloo and NCCL listen."""

LOCALHOST = ("localhost", "localhost4", "localhost6")


@dataclass
class _Meeting:
    """place: where the worker group's store is. times: how often so many ranks met there, in this
    process."""

    place: list[str | None]
    store: Any
    times: Counter[int] = field(default_factory=Counter)


_met: list[_Meeting] = []
"""The last one, if there was one."""

_held: socket.socket | None = None
"""What keeps the port that `free_port` gave last."""


def fresh_store(rank: Rank) -> Any:
    """The worker group's store, under a prefix of its own.

    Neither a second run in a process nor a group that was started again may find addresses of the
    one before; so every rank calls this as often as the others do."""
    import torch.distributed as dist

    place = [os.environ.get(name) for name in (STORE, "MASTER_ADDR", "MASTER_PORT")]
    if not _met or _met[0].place != place:
        _met.clear()  # rank 0 may listen at the same port again
        _met.append(_Meeting(place, _opened(rank)))
    met = _met[0]
    met.times[rank.world] += 1
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    # Of a larger group some ranks may be new: they do not know how often the others met before.
    prefix = f"distcore-{attempt}-{rank.world}-{met.times[rank.world]}"
    return dist.PrefixStore(prefix, met.store)


def stay_on_loopback(rank: Rank) -> bool:
    """Have gloo and NCCL listen on the loopback interface if all ranks are on this machine; whether
    they are.

    A variable that the user has set is left. Otherwise gloo listens where the host's name points
    to. Raises TrainingError if the loopback is needed and down."""
    local = _all_here(rank)
    if local and Path("/sys/class/net/lo").exists():
        for name in INTERFACES:
            os.environ.setdefault(name, "lo")
        if rank.world > 1 and os.environ[INTERFACES[0]] == "lo" and not _loopback_is_up():
            raise TrainingError(
                "The loopback interface of this machine or container is down, and processes of one "
                "machine meet there: `ip link set lo up`, then run the same command again; or "
                "train in one process."
            )
    return local


def _loopback_is_up() -> bool:
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as there:
            there.connect((address, 9))  # which sends nothing
            return True
    return False


def is_loopback(host: str) -> bool:
    """Whether an address or name is the loopback to whoever is told it. What only leads there on
    its own machine, as a host's name does in Debian's /etc/hosts, is not."""
    return host.startswith("127.") or host.lower().partition(".")[0] in LOCALHOST


def free_port(address: str) -> int:
    """A port of an address of this machine, for a MASTER_PORT: rank 0 can listen there, and no
    other socket gets it by chance until this process ends or asks for another port. What listens
    there must set SO_REUSEADDR, as torch and `socket.create_server` do."""
    global _held
    if _held is not None:
        _held.close()
    holder = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((address, 0))
    port = int(holder.getsockname()[1])
    if sys.platform == "linux":  # where another may listen beside a socket that only has the port
        _held = holder
    else:
        holder.close()
    return port


def machine() -> str:
    """A name that processes share which see each other by their numbers, and no others: those of
    one machine, or of one container there. The host's name, "-", and more without a "-"."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        boot = "0"
    return f"{socket.gethostname()}-{boot}{namespace('pid')}"


def namespace(kind: str) -> int:
    """The number of this process's namespace of a kind, as of `pid` or `mnt`; 0 where there are
    none."""
    try:
        return os.stat(f"/proc/self/ns/{kind}").st_ino
    except OSError:
        return 0


def interface_of(address: str) -> str | None:
    """The network interface that has the IP address; None: not found. For ranks of Ray and
    Horovod, which both bring psutil."""
    import psutil

    for name, found in psutil.net_if_addrs().items():
        if any(each.address == address for each in found):
            return str(name)
    return None


def _all_here(rank: Rank) -> bool:
    return int(os.environ.get("LOCAL_WORLD_SIZE", 0)) == rank.world


def _opened(rank: Rank) -> Any:
    import torch.distributed as dist

    path = os.environ.get(STORE)
    if path is not None:
        return dist.FileStore(path, rank.world)
    # torchrun's own, already listening.
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        meeting = dist.rendezvous("env://", rank.index, rank.world, timeout=TIMEOUT)
        return next(iter(meeting))[0]
    return _at_master(rank)


def _at_master(rank: Rank) -> Any:
    """The store at MASTER_ADDR, which rank 0 serves. Raises TrainingError if it cannot."""
    import torch.distributed as dist

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank.index:
        return dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=TIMEOUT)
    try:
        listener = _listener(host, port, rank)  # whose error is a plain one
    except OSError as error:
        failed = TrainingError(
            f"Rank 0 cannot listen at MASTER_ADDR {host}, MASTER_PORT {port}, where the ranks "
            f"meet: {os.strerror(error.errno or 0)}. Give an address of its machine, and a port "
            "that is free; if you gave none, start again."
        )
        failed.recurs = error.errno != errno.EADDRINUSE
        raise failed from error
    return dist.TCPStore(
        host, port, is_master=True, wait_for_workers=False, timeout=TIMEOUT,
        master_listen_fd=listener.detach(), use_libuv=True,
    )  # fmt: skip


def _listener(host: str, port: int, rank: Rank) -> socket.socket:
    """At the host's address alone; at all of this machine's where that is none of them, or where
    others know its name by another address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with suppress(socket.gaierror):  # a name that IPv4 does not have
        leads_to = str(socket.getaddrinfo(host, port, family)[0][4][0])
        if not leads_to.startswith("127.") or is_loopback(host) or _all_here(rank):
            try:
                return socket.create_server((host, port), family=family)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:  # it leads here by way of another machine
                    raise
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, dualstack_ipv6=both)
