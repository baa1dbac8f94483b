"""Where ranks meet that no process of ours has started."""

import os
import shutil
import socket
import subprocess
import sys
from datetime import timedelta

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
        with pytest.raises(TrainingError, match=f"127.0.0.1, MASTER_PORT {port}, .*in use") as told:
            meeting._at_master(LEADER)
    assert not told.value.recurs, "another attempt has another port"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing keeps a port")
def test_a_port_that_ranks_will_meet_at_is_not_given_to_others_meanwhile(monkeypatch):
    """Rank 0 listens seconds after the port was chosen, mostly in another process."""
    port = meeting.free_port("127.0.0.1")
    with socket.socket() as another, pytest.raises(OSError, match="in use"):
        another.bind(("127.0.0.1", port))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    store = meeting._at_master(LEADER)
    store.set("met", "here")
    assert meeting._at_master(Rank(index=1, world=2)).get("met") == b"here"
    del store
    assert meeting.free_port("127.0.0.1") != port
    assert len(meeting._held) == 1


def test_a_larger_group_of_the_same_processes_meets_where_it_is_told(monkeypatch):
    """Rank 0 kept the store of the one before, at a port of which new ranks know nothing."""
    monkeypatch.setattr(meeting, "_met", [])
    monkeypatch.setattr(meeting, "TIMEOUT", timedelta(seconds=10))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    for world in (2, 4, 4, 2):
        monkeypatch.setenv("MASTER_PORT", str(meeting.free_port("127.0.0.1")))
        first = meeting.fresh_store(Rank(index=0, world=world))
        first.set("met", str(world))
        again = meeting.fresh_store(Rank(index=0, world=world))
        assert not again.check(["met"])
        # Another process has met nobody before.
        kept = meeting._met
        monkeypatch.setattr(meeting, "_met", [])
        assert meeting.fresh_store(Rank(index=1, world=world)).get("met") == str(world).encode()
        monkeypatch.setattr(meeting, "_met", kept)
        del first, again


def test_a_group_of_another_size_meets_at_the_same_port(monkeypatch):
    monkeypatch.setattr(meeting, "_met", [])
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(meeting.free_port("127.0.0.1")))
    held = []  # as a process group holds its store
    for world in (2, 4, 2):
        held.append(meeting.fresh_store(Rank(index=0, world=world)))
        assert not held[-1].check(["met"])
        held[-1].set("met", str(world))
    # A rank that only the larger group has.
    monkeypatch.setattr(meeting, "_met", [])
    assert meeting.fresh_store(Rank(index=3, world=4)).get("met") == b"4"


@pytest.mark.parametrize("address", ["192.0.2.7", "no.such.name.invalid"])
def test_an_address_that_is_not_this_machine_s_own_is_left_to_torch(monkeypatch, address):
    monkeypatch.setenv("MASTER_ADDR", address)
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setattr(meeting, "_of_torch", lambda rank: "torch's")
    assert meeting._at_master(LEADER) == "torch's"


SAY = "from distcore_torch.training.meeting import *; print(machine(), namespace('mnt'))"


def test_a_container_of_its_own_is_another_machine():
    """Also one with the host's name and network: a process number of it is somebody else's here."""
    mine = [meeting.machine(), str(meeting.namespace("mnt"))]
    assert mine[0].rpartition("-")[0] == socket.gethostname()

    def told(*enter):
        done = subprocess.run([*enter, sys.executable, "-c", SAY], capture_output=True, text=True)
        return done.stdout.split()

    assert told() == mine
    rights = [] if os.getuid() == 0 else ["-r"]
    if not shutil.which("unshare") or not told("unshare", *rights, "-m", "-p", "-f"):
        pytest.skip("no namespaces are allowed here")
    machine, files = told("unshare", *rights, "-m", "-p", "-f")
    assert machine != mine[0]
    assert files != mine[1]
    assert told("unshare", *rights, "-m")[0] == mine[0]
