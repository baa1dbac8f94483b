"""The pulse of a cluster: sockets stand for its parts."""

import socket
import threading

import pytest

from distcore_ray import pulse
from distcore_ray.pulse import Lost, Pulse


@pytest.fixture
def part():
    """A socket that listens, and the pulse that looks at it."""
    pulse.begin()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        yield server, Pulse(address, {"gcs_server": address}, {"gcs_server": 0.0})
    pulse.begin()


def test_a_call_that_waits_for_a_part_that_is_gone_does_not_keep_the_driver(part):
    """As `ray.nodes()` does when gcs_server is killed just before it."""
    server, felt = part

    def waits_for_ever():
        server.close()
        threading.Event().wait()

    with pytest.raises(Lost, match="the gcs_server of the Ray cluster"):
        felt.during(waits_for_ever)
    assert pulse.is_lost()


def test_what_a_call_gives_or_raises_is_handed_on(part):
    _, felt = part
    assert felt.during(lambda: 7) == 7
    with pytest.raises(KeyError, match="nodes"):
        felt.during(lambda: {}["nodes"])
    assert not pulse.is_lost()
