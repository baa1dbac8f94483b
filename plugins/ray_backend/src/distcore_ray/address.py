"""Which Ray cluster this process is in or is pointed to: the environment, a file and a socket, and
no import of Ray.

`ray.init()` believes the address file of a cluster that died, and then hangs for minutes; here an
address of the file counts only if something answers.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = "ray/ray_current_cluster"
"""Where `ray start` leaves its address, under the folder for temporary files."""

PROBE_SECONDS = 0.25
"""How long a cluster on this machine may take to accept a connection."""

ANSWER_SECONDS = 10.0
"""How long the head of a cluster may take to answer who connects to it; on a quiet machine it
takes a millisecond."""

GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What a client of gRPC says first: HTTP/2's preface and empty settings (RFC 9113, 3.4)."""

SETTINGS = 4
"""The type of the frame, its fourth byte, that every gRPC server answers with at once."""

HOMELESS = "Ray keeps files in a home folder, and this user has none: set HOME to a folder of yours"

log = logging.getLogger("distcore")


def has_home() -> bool:
    """Whether HOME, or the user's entry in passwd, names a folder: Ray's libraries are not even
    imported without."""
    return os.path.expanduser("~") != "~"


@dataclass(frozen=True)
class Found:
    """A cluster to use. address: host:port, or "" if only Ray knows (inside a worker). reason: for
    people.

    priority: how strongly it speaks for the backend (`contracts.Detection`)."""

    address: str
    reason: str
    priority: int


@dataclass(frozen=True)
class AddressFile:
    """What the address file says. trouble: why the cluster is not to be used; "" if it is alive."""

    path: Path
    address: str
    trouble: str


def detect(environment: Mapping[str, str] = os.environ) -> Found | None:
    """The cluster that this process is in, that RAY_ADDRESS names, or that is alive on this
    machine; None: no such.

    What RAY_ADDRESS names is believed here: whoever set it must hear if it does not answer, not
    train elsewhere."""
    if environment.get("RAY_JOB_ID") and environment.get("RAY_RAYLET_PID"):
        return Found(
            _plain(environment), "inside a Ray worker (RAY_JOB_ID and RAY_RAYLET_PID are set)", 90
        )
    named = environment.get("RAY_ADDRESS", "")
    if named and named != "auto":
        return Found(named, f"RAY_ADDRESS is {named}", 80)
    file = address_file(environment)
    if file is None:
        return None
    if file.trouble:
        log.info(
            "%s names the Ray cluster %s, but %s; it is not used.",
            file.path,
            file.address,
            file.trouble,
        )
        return None
    return Found(file.address, f"a live Ray cluster at {file.address} (from {file.path})", 40)


def _plain(environment: Mapping[str, str]) -> str:
    named = environment.get("RAY_ADDRESS", "")
    return "" if named in ("auto", "local") else named


def address_file(environment: Mapping[str, str] = os.environ) -> AddressFile | None:
    """What the address file of a cluster on this machine says; None: there is none, or it is not
    this user's."""
    root = environment.get("RAY_TMPDIR") or environment.get("TMPDIR") or "/tmp"
    path = Path(root, FILE)
    try:
        if path.stat().st_uid != os.getuid():
            return None
        address = path.read_text().strip()
    except (OSError, ValueError):  # not there, or no text
        return None
    if not address:
        return None
    # A cluster that is too busy to greet within that time is believed here; who joins it waits
    # longer.
    trouble, silent = greet(address, PROBE_SECONDS, PROBE_SECONDS)
    return AddressFile(path, address, "" if silent else trouble)


def connection(address: str, seconds: float) -> socket.socket:
    """One to host:port, which may take so long to be accepted. Raises OSError."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=seconds)


def probe(address: str, seconds: float) -> str:
    """Why nothing can be asked at host:port; "" if a connection is accepted."""
    host, _, port = address.rpartition(":")
    if not host.strip("[]") or not port.isdecimal():
        return "that is not host:port"
    try:
        connection(address, seconds).close()
    # OverflowError: no such port. UnicodeError: no such name (`.head`).
    except (OSError, OverflowError, UnicodeError) as error:
        return f"nothing answers there ({getattr(error, 'strerror', None) or error})"
    return ""


def greet(address: str, connect: float, answer: float = ANSWER_SECONDS) -> tuple[str, bool]:
    """Whether what listens at host:port greets as a gRPC server, as a Ray cluster's head does.

    `ray.init()` waits for minutes if a connection is accepted and nothing is said: a process that
    stands still, a port of something else.

    Args:
        address: host:port.
        connect: Seconds that it may take to accept a connection.
        answer: Seconds that it may then take to answer.

    Returns:
        Why it is no cluster ("": it greeted), and whether it accepted a connection and then said
        nothing.
    """
    trouble = probe(address, connect)
    if trouble or os.environ.get("RAY_USE_TLS", "0").lower() in (
        "1",
        "true",
    ):  # it would greet within TLS
        return trouble, False
    heard = b""
    try:
        with connection(address, connect) as head:
            head.settimeout(answer)
            head.sendall(GREETING)
            while len(heard) < 4 and (more := head.recv(64)):
                heard += more
    except TimeoutError:
        return f"something there accepts connections, but says nothing within {answer:g} s", True
    except OSError as error:
        return f"what listens there breaks the connection off ({error.strerror or error})", False
    if heard.startswith(b"HTTP/1"):
        return (
            "what answers there is a web server, not a Ray cluster's head (its port is 6379, if "
            "not said otherwise)",
            False,
        )
    well = len(heard) >= 4 and heard[3] == SETTINGS
    return ("" if well else "what answers there is not a Ray cluster's head"), False


def is_loopback(address: str) -> bool:
    """Whether host:port can be reached from this machine alone."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False
