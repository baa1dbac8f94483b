"""The slowest rank is named by what the others waited for it, and by nothing less."""

import pytest

from distcore_torch.training.heartbeat import COMPUTING, DOING, LOADING, WAITING
from distcore_torch.training.stragglers import slowest


def rank(loading, computing, waiting):
    seconds = [0.0] * len(DOING)
    seconds[LOADING], seconds[COMPUTING], seconds[WAITING] = loading, computing, waiting
    return seconds, 7, "host"


def test_it_is_named_with_its_share_and_what_it_does():
    said = slowest([rank(1, 29, 60), rank(60, 29, 1), rank(1, 29, 60)])
    assert said.startswith(
        "Rank 1 (process 7 on host) is the slowest: the other ranks have waited for it 67% of"
    )
    assert "67% of its own went into loading" in said


@pytest.mark.parametrize(
    "ranks",
    [
        [rank(1, 9, 0.1), rank(1, 9.1, 0)],  # even
        [rank(1, 4, 10), rank(1, 14, 0)],  # not long enough to say
        [rank(1, 50, 20), rank(1, 60, 10)],  # a little slower
        [rank(1, 20, 60), rank(1, 21, 60)],  # slow collectives, which are nobody's
    ],
)
def test_nobody_is_named_otherwise(ranks):
    assert slowest(ranks) is None
