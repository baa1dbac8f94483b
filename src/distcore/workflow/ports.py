"""What processes listen on, as /proc tells it: for `distcore doctor`, and for tests that nobody
gets in."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp."""

PROC = Path("/proc")


class Port(NamedTuple):
    """A listening TCP socket. command: the process's, shortened. loopback: whether this machine
    alone reaches it."""

    process: int
    command: str
    address: str
    port: int

    @property
    def loopback(self) -> bool:
        found = ip_address(self.address)
        mapped = getattr(found, "ipv4_mapped", None)
        return (mapped or found).is_loopback

    def __str__(self) -> str:
        return f"{self.address}:{self.port} (process {self.process}, {self.command})"


def listening(processes: Iterable[int]) -> list[Port]:
    """What these processes listen on, as far as /proc tells; other users' are not told, nor
    those that have ended."""
    found = []
    for process in sorted(processes):
        sockets = _listening_sockets(process)
        found += [
            Port(process, _command(process), *sockets[inode])
            for inode in _inodes(process)
            if inode in sockets
        ]
    return sorted(set(found))


def below(process: int) -> set[int]:
    """The process and everything that it has started, and what they have, as far as they still
    hang together."""
    children: dict[int, list[int]] = {}
    for each in _processes():
        children.setdefault(_parent(each), []).append(each)
    found, waiting = set(), [process]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += children.get(one, [])
    return found


def of_distcore() -> set[int]:
    """This user's processes that run distcore, with all that they started; this one is left out."""
    mine = os.getuid()
    named = [
        each for each in _processes() if _owner(each) == mine and "distcore" in _command(each, 4096)
    ]
    found: set[int] = set()
    for each in named:
        found |= below(each)
    return found - {os.getpid()}


def _processes() -> list[int]:
    return [int(each.name) for each in PROC.glob("[0-9]*")] if PROC.is_dir() else []


def _parent(process: int) -> int:
    with suppress(OSError, IndexError):
        return int((PROC / str(process) / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _owner(process: int) -> int:
    with suppress(OSError):
        return (PROC / str(process)).stat().st_uid
    return -1


def _command(process: int, most: int = 60) -> str:
    with suppress(OSError):
        words = (PROC / str(process) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        return " ".join(words).strip()[:most]
    return ""


def _inodes(process: int) -> set[str]:
    """Sockets that the process holds."""
    found = set()
    with suppress(OSError):
        for each in (PROC / str(process) / "fd").iterdir():
            with suppress(OSError):
                name = os.readlink(each)
                if name.startswith("socket:["):
                    found.add(name[len("socket:[") : -1])
    return found


def _listening_sockets(process: int) -> dict[str, tuple[str, int]]:
    """{inode: (address, port)} of what listens in the process's network namespace."""
    found = {}
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (PROC / str(process) / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTEN:
                    found[fields[9]] = _address(fields[1])
    return found


def _address(text: str) -> tuple[str, int]:
    """Of `0100007F:1F90`: words of four bytes in the machine's own order."""
    words, _, port = text.partition(":")
    raw = b"".join(bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, len(words), 8))
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw), int(
        port, 16
    )
