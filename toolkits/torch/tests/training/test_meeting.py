"""Where ranks meet that no process of ours has started."""

import socket

import pytest

from distcore_core.contracts import Rank
from distcore_core.errors import TrainingError
from distcore_torch.training import meeting

LEADER = Rank(index=0, world=2)


def test_a_port_that_another_one_has_is_told_and_nothing_listens_elsewhere(monkeypatch):
    """torch's store, which listens on every interface, took its place."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(port))
        monkeypatch.setattr(meeting, "_of_torch", lambda rank: "torch's")
        with pytest.raises(TrainingError, match=f"127.0.0.1, MASTER_PORT {port}, .*in use"):
            meeting._at_master(LEADER)


@pytest.mark.parametrize("address", ["192.0.2.7", "no.such.name.invalid"])
def test_an_address_that_is_not_this_machine_s_own_is_left_to_torch(monkeypatch, address):
    monkeypatch.setenv("MASTER_ADDR", address)
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setattr(meeting, "_of_torch", lambda rank: "torch's")
    assert meeting._at_master(LEADER) == "torch's"
