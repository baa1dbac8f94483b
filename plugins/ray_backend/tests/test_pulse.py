"""The pulse of a cluster: sockets stand for its parts."""

import socket
import threading

import pytest

from distcore_ray import session
from distcore_ray.session import Lost, Pulse


@pytest.fixture
def part():
    """A socket that listens, and the pulse that looks at it."""
    session.begin()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        yield server, Pulse(address, {"gcs_server": address}, {"gcs_server": 0.0})
    session.begin()


def test_a_call_that_waits_for_a_part_that_is_gone_does_not_keep_the_driver(part):
    """As `ray.nodes()` does when gcs_server is killed just before it."""
    server, pulse = part

    def waits_for_ever():
        server.close()
        threading.Event().wait()

    with pytest.raises(Lost, match="the gcs_server of the Ray cluster"):
        pulse.during(waits_for_ever)
    assert session.is_lost()


def test_what_a_call_gives_or_raises_is_handed_on(part):
    _, pulse = part
    assert pulse.during(lambda: 7) == 7
    with pytest.raises(KeyError, match="nodes"):
        pulse.during(lambda: {}["nodes"])
    assert not session.is_lost()
