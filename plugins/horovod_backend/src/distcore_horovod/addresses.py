"""At which address a rank listens, so that ranks on other machines reach it."""

from __future__ import annotations

import socket
from contextlib import suppress

LOOPBACK = "127.0.0.1"

ELSEWHERE = "192.0.2.1"
"""An address of nobody (RFC 5737): the way there is the default route."""


def shared_address(hosts: list[str]) -> str:
    """Where rank 0 listens for all ranks: the loopback if they are on one machine.

    hosts: of every rank, as `meeting.machine` names them."""
    return LOOPBACK if len(set(hosts)) == 1 else reached_address()


def reached_address() -> str:
    """The IPv4 address by which other machines reach this one: of its name, unless that leads to
    the loopback here (as Debian has it); else of the default route, else of any interface that is
    up."""
    import psutil

    name = socket.gethostname()
    found: list[str] = []
    with suppress(OSError):
        found += socket.gethostbyname_ex(name)[2]
    found += filter(None, [towards(ELSEWHERE)])
    down = {interface for interface, each in psutil.net_if_stats().items() if not each.isup}
    found += [
        each.address
        for interface, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if each.family == socket.AF_INET and interface not in down
    ]
    return next((each for each in found if not each.startswith("127.")), name)


def towards(host: str) -> str | None:
    """The address of this machine that another host sees; None: there is no way there. Nothing is
    sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return None
