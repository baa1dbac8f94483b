"""Where ranks meet that no process of ours has started."""

import errno
import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
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
    held = meeting._held
    assert meeting.free_port("127.0.0.1") != port
    assert held.fileno() == -1, "only the last is kept"


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


@pytest.mark.parametrize("error", [OSError(errno.EADDRNOTAVAIL, ""), socket.gaierror()])
def test_where_an_address_is_not_this_machine_s_own_others_reach_rank_0_all_the_same(
    monkeypatch, error
):
    """That of a translated network, say. Rank 0 waited for others to say that they have come."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(meeting.free_port("127.0.0.1")))
    monkeypatch.setattr(meeting, "TIMEOUT", timedelta(seconds=10))

    listen = socket.create_server

    def create_server(address, **how):
        if address[0]:
            raise error
        return listen(address, **how)

    monkeypatch.setattr(socket, "create_server", create_server)
    store = meeting._at_master(LEADER)
    store.set("met", "here")
    assert meeting._at_master(Rank(index=1, world=2)).get("met") == b"here"


@pytest.mark.parametrize(
    ("host", "here", "where"),
    [
        ("debian", "1", "all"),  # others know another address of that name
        ("debian", "2", "127.0.1.1"),
        ("localhost", "1", "127.0.0.1"),
        ("LocalHost.localdomain", "1", "127.0.0.1"),
        ("127.0.0.1", "1", "127.0.0.1"),
    ],
)
def test_a_name_that_leads_to_the_loopback_here_is_not_listened_at_for_other_machines(
    monkeypatch, host, here, where
):
    """Rank 0 listened at 127.0.1.1, and the others waited for it."""
    listened = []

    class Listening(Exception):
        pass

    def of_name(name, port, *_):
        address = {"debian": "127.0.1.1"}.get(name, "127.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    def create_server(address, **_):
        listened.append(of_name(*address)[0][4][0] if address[0] else "all")
        raise Listening

    monkeypatch.setattr(socket, "getaddrinfo", of_name)
    monkeypatch.setattr(socket, "create_server", create_server)
    for name, value in (("MASTER_ADDR", host), ("MASTER_PORT", "1"), ("LOCAL_WORLD_SIZE", here)):
        monkeypatch.setenv(name, value)
    with suppress(Listening):
        meeting._at_master(LEADER)
    assert listened == [where]


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


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode != 0,
    reason="no network namespace is allowed here",
)
def test_a_loopback_that_is_down_is_told():
    """Gloo said "Unable to find address for: lo", in each of four attempts."""
    code = (
        "from distcore_torch.training.meeting import Rank, stay_on_loopback\n"
        "stay_on_loopback(Rank(index=0, world=2, local_rank=0))"
    )
    done = subprocess.run(
        ["unshare", "-rn", sys.executable, "-c", code],
        env={**os.environ, "LOCAL_WORLD_SIZE": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "TrainingError: The loopback interface of this machine or container is down" in (
        done.stderr
    )
