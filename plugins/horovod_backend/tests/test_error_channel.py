"""Last words of ranks, and who ended without any: on this machine by its process, elsewhere by
elimination. No other rank is started."""

import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from torch.distributed import HashStore

from distcore_horovod import addresses, error_channel
from distcore_horovod.error_channel import STOPPING, ErrorChannel

HERE, THERE, FAR = "here-11112222", "over-there-33334444", "far-55556666"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(error_channel, "SECONDS", 0.0)


@pytest.fixture
def processes():
    """This process, one that has ended and was waited for, and a zombie."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    yield [os.getpid(), ended.pid, zombie.pid]
    zombie.wait()


@pytest.mark.parametrize(("hosts", "name"), [([HERE] * 2, "127.0.0.1"), ([HERE, FAR], "127.0.0.9")])
def test_the_leader_serves_on_the_loopback_unless_others_are_elsewhere(hosts, name, monkeypatch):
    """The other rank is told where by Horovod, and reaches it there."""
    monkeypatch.setattr(addresses, "reached_address", lambda: "127.0.0.9")
    told = Future()

    def opened(rank):
        def broadcast_object(value, root_rank, name):
            if rank == root_rank:
                told.set_result(value)
            return told.result(60)

        return ErrorChannel.open(
            SimpleNamespace(broadcast_object=broadcast_object), rank, hosts, [7, 8]
        )

    with ThreadPoolExecutor(2) as pool:
        leader, other = pool.map(opened, range(2))
    assert told.result()[0] == name
    other.leave("KeyError: 3")
    place = hosts[1].partition("-")[0]
    assert leader.reason() == f"rank 1 (process 8 on {place}) ended: KeyError: 3."


def test_the_first_to_speak_is_heard_by_all_with_its_place():
    store = HashStore()
    leader, one, two = (
        ErrorChannel(store, rank, [HERE, THERE, HERE], [1, 2, 3]) for rank in range(3)
    )
    one.leave("ValueError: no rows.")
    two.leave("the launcher asked for it")
    said = "rank 1 (process 2 on over-there) ended: ValueError: no rows."
    assert leader.cause(0.0) == two.cause(0.0) == leader.reason() == said


def test_whose_process_is_gone_is_named(processes):
    mine, ended, zombie = processes
    assert ErrorChannel(None, 0, [HERE] * 2, [mine, mine]).gone() is None
    assert ErrorChannel(HashStore(), 0, [HERE] * 3, [mine, mine, ended]).reason() == (
        f"rank 2 (process {ended} on here) has ended without a word (killed, or out of memory?)."
    )
    both = ErrorChannel(None, 1, [HERE] * 3, [zombie, mine, ended]).reason(ended=True)
    who = f"rank 0 (process {zombie} on here), rank 2 (process {ended} on here)"
    assert both.startswith(f"{who} have ended without a word")


def test_of_another_machine_no_process_is_asked(processes):
    mine, ended, _ = processes
    channel = ErrorChannel(None, 0, [HERE, THERE], [mine, ended])
    assert channel.gone() is None
    assert channel.reason() == (
        f"rank 1 (process {ended} on over-there) has ended, or is not reached; the launcher's own "
        "lines say more."
    )
    assert channel.reason(ended=True).startswith("the launcher asked for it; the launcher's own")
    several = ErrorChannel(None, 1, [THERE, HERE, FAR, FAR], [1, mine, 2, 3])
    assert several.reason().startswith("a rank on far or over-there has ended, or is not")
    assert ErrorChannel(None, 0, [HERE] * 2, [mine, mine]).reason().startswith("a rank has ended")


def test_where_all_were_asked_to_end_nobody_is_to_blame(processes):
    mine, ended, _ = processes
    store = HashStore()
    leader, other = (ErrorChannel(store, rank, [HERE] * 2, [mine, ended]) for rank in range(2))
    other.leave("KeyboardInterrupt")
    other.stops()
    assert store.check([STOPPING])
    assert leader.cause(0.0) is None
    ErrorChannel(None, 1, [HERE] * 2, [mine, ended]).stops()


def test_the_first_that_is_left_speaks_for_a_leader_that_is_gone(processes):
    mine, ended, zombie = processes

    def speaks(rank, *found, host=HERE):
        return ErrorChannel(None, rank, [host, HERE, HERE], list(found)).speaks_for_the_leader()

    assert speaks(1, ended, mine, mine)
    assert speaks(2, ended, zombie, mine)
    assert not speaks(2, ended, mine, mine)
    assert not speaks(1, mine, mine, mine)
    assert not speaks(1, ended, mine, mine, host=THERE)
    told = ErrorChannel(HashStore(), 1, [HERE] * 3, [ended, mine, mine])
    assert told.speaks_for_the_leader()
    told.stops()
    assert not told.speaks_for_the_leader(), "it was asked to end"


def test_a_store_that_is_gone_takes_no_words_and_hides_no_loss(processes):
    class Gone:
        def __getattr__(self, name):
            raise ConnectionError("the leader has ended")

    mine, ended, _ = processes
    channel = ErrorChannel(Gone(), 1, [HERE] * 2, [ended, mine])
    channel.leave("words")
    channel.stops()
    assert channel.cause(0.0).startswith("rank 0 (process")
