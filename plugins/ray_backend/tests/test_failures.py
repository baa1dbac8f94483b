"""Which rank is blamed for a worker group's end."""

import errno
import socket
from types import SimpleNamespace

import pytest
from ray.exceptions import RayTaskError

from distcore_core.errors import UserError
from distcore_ray import storage
from distcore_ray.coordinator import Failure, Seat
from distcore_ray.failures import cause_of, first_cause, last_line

FULL = OSError(errno.ENOSPC, "No space left on device")
LOST = "raised RuntimeError: connection closed by peer"


def failure(rank, how=LOST, group="a", **more):
    return Failure(Seat(group, rank, 2, "node", "10.0.0.1", 100 + rank), how, **more)


def test_the_one_that_the_system_refused_is_blamed_and_not_one_that_lost_it():
    failures = [failure(0, died=False), failure(1, "met a full disk", died=False, cause=FULL)]
    assert cause_of("a", failures) is FULL
    assert first_cause("a", [], failures, []).startswith(
        "rank 1 on node 10.0.0.1 (process 101) met"
    )


def test_without_one_it_is_the_first_that_raised():
    failures = [failure(0, died=False, group="before", cause=FULL), failure(1, died=False)]
    assert cause_of("a", failures) is None
    assert first_cause("a", [], failures, []).startswith("rank 1")


def test_one_that_was_killed_comes_before_all_others():
    failures = [failure(0, died=False, cause=FULL), failure(1, "was killed", died=True)]
    assert cause_of("a", failures) is None
    assert first_cause("a", [], failures, []).startswith("rank 1")


def test_a_node_that_is_gone_comes_before_what_other_ranks_raised():
    """They raise as they lose the connection to its ranks."""
    seats = [Seat("a", rank, 3, f"n{rank}", f"10.0.0.{rank}", 100 + rank) for rank in range(3)]
    seats.append(Seat("before", 0, 1, "n9", "10.0.0.9", 99))
    failures = [failure(0, died=False)]
    with socket.create_server(("127.0.0.1", 0)) as answering, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen

        def node(name, alive, at):
            port = at.getsockname()[1]
            place = {"NodeManagerAddress": "127.0.0.1", "NodeManagerPort": port}
            return {"NodeID": name, "Alive": alive, **place}

        n0, n1 = node("n0", True, answering), node("n1", True, answering)
        for gone in (node("n2", True, silent), node("n2", False, answering)):
            said = first_cause("a", seats, failures, [n0, n1, gone])
            assert said.startswith("rank 2 went down with its node 10.0.0.2 (n2)")
        others = node("n8", False, silent)
        there = [others, n0, n1, node("n2", True, answering)]
        assert first_cause("a", seats, failures, there).startswith("rank 0 on node 10.0.0.1")
        assert first_cause("a", seats, [], there).startswith(
            "Ray ended a worker without telling why (rank 0 on node 10.0.0.0, rank 1"
        )


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\n  b.\n\n", "  b"), ("", "RuntimeError"), (" \n", "RuntimeError"), ("a", "a")],
)
def test_of_what_ray_says_the_last_line_is_told(text, line):
    assert last_line(RuntimeError(text)) == line


@pytest.mark.parametrize("imports", [True, False])
def test_a_node_without_distcore_is_named(monkeypatch, imports):
    """It was the traceback of Ray's own unpickling, of no node."""
    why = "The remote function failed to import on the worker. This may be because needed"
    text = f"RuntimeError: {why if imports else 'Other'}\nNo module named 'distcore_ray'"

    def get(reference):
        raise RayTaskError("_missing", text, RuntimeError(text), "worker", 1, "10.0.0.2")

    task = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda wanted: "reference"))
    fake = SimpleNamespace(
        remote=lambda **_: lambda function: task, wait=lambda asked, **_: (asked, []), get=get
    )
    monkeypatch.setattr(storage, "ray", fake)
    monkeypatch.setattr(storage, "NodeAffinitySchedulingStrategy", lambda *_, **__: None)
    node = {"NodeID": "a", "NodeManagerAddress": "10.0.0.2"}
    with pytest.raises(UserError if imports else RayTaskError) as caught:
        storage._ask([node], {}, {})
    if imports:
        assert str(caught.value).startswith(
            "The node 10.0.0.2 of the Ray cluster cannot import distcore_ray: No module named "
            "'distcore_ray'. Install distcore-ray there"
        )
