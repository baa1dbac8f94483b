"""Which rank is blamed for a worker group's end."""

import errno

from distcore_ray.coordinator import Failure, Seat
from distcore_ray.failures import cause_of, first_cause

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
