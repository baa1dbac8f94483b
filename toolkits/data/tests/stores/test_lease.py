"""Who holds a lease, by a clock of the test's own."""

import threading
import time

import pytest

from distcore_core.errors import StoreError
from distcore_data.stores import lease as leases
from distcore_data.stores import open_store
from distcore_data.stores.lease import LOOK, PATIENCE, Heartbeat, Lease, alive, held_by, is_lost

FAILURES = [StoreError("no network"), OSError(28, "no space left")]
"""A bucket's and a folder's."""


class Clock:
    """`then` is called with the time at every look of who waits."""

    def __init__(self):
        self.now, self.then = 100.0, lambda now: None

    def monotonic(self):
        return self.now

    CLOCK_MONOTONIC = None

    def clock_gettime(self, _):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.then(self.now)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(leases, "time", made)
    return made


@pytest.fixture
def store(tmp_path):
    return open_store(f"memory://{tmp_path.name}/leases")


def test_a_lease_of_the_dead_is_taken_after_patience(store, clock):
    store.create("l", b"dead")
    waits = []
    with Lease(store, "l") as lease:
        assert lease.acquire_from_the_dead(lambda: waits.append(clock.now))
        assert waits == [100.0]
        assert PATIENCE < clock.now - 100.0 <= PATIENCE + 3 * LOOK
        assert store.read("l") != b"dead"
    assert store.list() == {}


def test_of_two_who_take_a_lease_of_the_dead_one_holds_it(store, clock, monkeypatch):
    """The other one had seen the dead lease, and deletes what it finds under its name by then."""
    store.create("l", b"dead")
    real, other = store.delete, Lease(store, "l")

    def delete(names):
        real(names)

        def then(now):
            real(["l"])
            store.create("l", other._content(0))
            clock.then = lambda now: None

        clock.then = then

    monkeypatch.setattr(store, "delete", delete)
    with Lease(store, "l") as lease:
        assert not lease.acquire_from_the_dead(lambda: None)
    assert held_by(store.read("l")) == other.id


def test_who_was_taken_for_dead_leaves_the_lease_to_the_other_one(store, monkeypatch):
    monkeypatch.setattr(leases, "BEAT", 0.01)
    other = Lease(store, "l")
    with Lease(store, "l") as lease:
        assert lease.acquire_from_the_dead(lambda: None)
        store.write("l", other._content(0))
        lease._heart._thread.join(20)
        assert not lease._heart._thread.is_alive()
    assert store.read("l") == other._content(0)


def test_who_lets_go_leaves_what_another_one_holds(store):
    """Also if its heart has not looked since."""
    other = Lease(store, "l")
    with Lease(store, "l") as lease:
        assert lease.acquire_from_the_dead(lambda: None)
        store.write("l", other._content(0))
    assert store.read("l") == other._content(0)


@pytest.mark.parametrize("error", FAILURES)
def test_a_store_that_cannot_be_reached_at_the_end_ends_no_work(store, monkeypatch, error):
    def unreachable(names):
        raise error

    with Lease(store, "l") as lease:
        assert lease.acquire_from_the_dead(lambda: None)
        monkeypatch.setattr(store, "delete", unreachable)


def test_a_store_that_ignores_the_condition_of_a_put_is_refused(store, monkeypatch):
    """Also if what was put to find out cannot be deleted; what another one put stays."""

    def create(name, content):
        store.write(name, content)
        return True

    def delete(names):
        deleted.extend(names)
        raise StoreError("no network")

    deleted = []
    monkeypatch.setattr(store, "create", create)
    monkeypatch.setattr(store, "delete", delete)
    with Lease(store, "l") as lease, pytest.raises(StoreError, match="ignores the condition"):
        lease.acquire_from_the_dead(lambda: None)
    assert deleted == ["l"]
    monkeypatch.setattr(store, "create", lambda name, content: True)
    store.write("l", Lease(store, "l")._content(0))
    with Lease(store, "l") as lease, pytest.raises(StoreError, match="ignores the condition"):
        lease.acquire_from_the_dead(lambda: None)
    assert deleted == ["l"]


def test_a_store_is_not_blamed_for_a_lease_that_another_one_deletes(store, monkeypatch):
    """Who waits and has just seen the dead one for the last time deletes what has its name by
    then."""
    real, made = store.create, []

    def create(name, content):
        made.append(real(name, content))
        if len(made) == 1:
            store.delete([name])
        return made[-1]

    monkeypatch.setattr(store, "create", create)
    with Lease(store, "l") as lease:
        assert lease.acquire_from_the_dead(lambda: None)
        assert held_by(store.read("l")) == lease.id
    assert made == [True, True, False]


def test_each_beat_of_a_heart_is_another_until_it_stops(store):
    """By those that are alike who waits would take it for dead."""
    beats, three = [], threading.Event()

    def content(beat):
        beats.append(beat)
        if beat == 3:
            three.set()
        return b"%d" % beat

    heart = Heartbeat(store, "h", content, 0.001)
    assert not heart.stop()  # none has begun
    heart.start()
    assert three.wait(20)
    assert heart.stop()
    assert not heart.stop()
    assert beats == list(range(1, len(beats) + 1))
    assert store.read("h") == b"%d" % beats[-1]


def test_a_heart_that_was_paused_after_it_looked_looks_again(store, clock):
    """Another one may have taken the lease over meanwhile, and be done."""
    looks = []

    def ends():
        looks.append(clock.now)
        clock.now += PATIENCE + 1
        return len(looks) > 1

    heart = Heartbeat(store, "h", lambda beat: b"%d" % beat, 0.001, ends)
    heart.start()
    heart._thread.join(20)
    assert len(looks) == 2
    assert store.list() == {}


@pytest.mark.parametrize("error", FAILURES)
def test_a_beat_that_fails_is_none(store, clock, monkeypatch, error):
    def write(name, content):
        last.append(heart.last)
        clock.now += 1
        beats.append(content)
        if len(beats) == 1:
            raise error

    beats, last = [], []
    monkeypatch.setattr(store, "write", write)
    heart = Heartbeat(store, "h", lambda beat: b"%d" % beat, 0.001, lambda: len(beats) == 3)
    heart.start()
    heart._thread.join(20)
    assert beats == [b"1", b"2", b"3"]
    assert last == [0.0, 0.0, 101.0]


def test_a_pause_before_the_heart_beats_counts(store, clock, monkeypatch):
    real = store.create

    def create(name, content):
        made = real(name, content)
        clock.now += 0 if made else PATIENCE + 1  # until it is known that the condition is kept
        return made

    monkeypatch.setattr(store, "create", create)
    with Lease(store, "l") as lease:
        assert lease.acquire_from_the_dead(lambda: None)
        store.delete(["l"])  # by another one, who is done
        assert lease._is_lost()


def test_a_lease_that_somebody_deleted_is_written_again(store, monkeypatch):
    monkeypatch.setattr(leases, "BEAT", 0.01)
    with Lease(store, "l") as lease:
        assert lease.acquire_from_the_dead(lambda: None)
        store.delete(["l"])
        until = time.monotonic() + 20
        while not store.list() and time.monotonic() < until:
            time.sleep(0.01)
        assert held_by(store.read("l")) == lease.id


def test_a_lease_that_is_gone_after_a_pause_is_another_s_that_was_done_meanwhile(store, clock):
    with Lease(store, "l") as lease:
        assert lease.acquire_from_the_dead(lambda: None)
        store.delete(["l"])
        assert not lease._is_lost()  # somebody deleted it
        assert is_lost(store, "l", lease.id)  # and nobody writes it again
        clock.now += PATIENCE + 1
        assert lease._is_lost()
        assert store.list() == {}
        clock.then = lambda now: store.write("l", lease._content(2))
        assert not is_lost(store, "l", lease.id)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"1", b"{}", b"\xff", b"[" * 100_000, b'{"id":' * 5000]
)
def test_what_is_no_lease_is_held_by_nobody(content):
    """Text that is deeply nested ended the thread that keeps a lease alive."""
    assert held_by(content) == ""
    assert held_by(b'{"id": "me", "beat": 3}') == "me"


def test_a_lease_of_the_living_is_theirs(store, clock):
    store.create("l", b"0")
    clock.then = lambda now: store.write("l", b"%d" % now)
    with Lease(store, "l") as lease:
        assert not lease.acquire_from_the_dead(lambda: None)
    assert clock.now < 100.0 + PATIENCE
    assert store.read("l") == b"%d" % clock.now  # and is left to them


def test_a_lease_that_is_waited_for_is_held_once_its_holder_lets_go(store, clock):
    store.create("l", b"0")

    def then(now):
        if now >= 100.0 + 2 * PATIENCE:
            store.delete(["l"])
        elif now % leases.BEAT == 0:  # it lives, for longer than patience
            store.write("l", b"%d" % now)

    clock.then = then
    with Lease(store, "l") as lease:
        assert lease.acquire(lambda: False, lambda: None)
        assert clock.now == 100.0 + 2 * PATIENCE
        with Lease(store, "l") as other:
            clock.then = lambda now: None
            assert not other.acquire(lambda: clock.now >= 170.0, lambda: None)
        assert clock.now == 170.0  # what it waited for was done
        assert store.list().keys() == {"l"}


def test_a_holder_that_lets_go_between_two_looks_is_no_other_one(store, clock, monkeypatch):
    store.create("l", b"0")
    real = store.create

    def create(name, content):
        made = real(name, content)
        if not made and clock.now > 100.0:
            store.delete([name])
        return made

    monkeypatch.setattr(store, "create", create)
    with Lease(store, "l") as lease:
        monkeypatch.setattr(lease, "_prove", lambda: None)
        assert lease.acquire_from_the_dead(lambda: None)


def test_those_live_whose_leases_change(store, clock):
    for name in ("lives", "dead", "ends"):
        store.create(name, b"0")

    def then(now):
        store.write("lives", b"%d" % now)
        store.delete(["ends"])

    clock.then = then
    assert alive(store, ["lives", "dead", "ends", "none"]) == {"lives"}
    assert clock.now == 100.0 + 2 * leases.BEAT
    assert alive(store, ["none"]) == set()
    assert clock.now == 100.0 + 2 * leases.BEAT  # nothing to wait for
