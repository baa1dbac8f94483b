"""The slowest rank is named by what the others waited for it, and by nothing less."""

import logging
import os
import socket
from types import SimpleNamespace

import pytest

from distcore_core.contracts import Rank
from distcore_torch.training.heartbeat import COMPUTING, DOING, LOADING, WAITING
from distcore_torch.training.stragglers import Stragglers, slowest


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


def looked(rounds, index=0):
    """Each round's seconds of a first rank so far go to a `Stragglers`, beside a second one's since
    the last; gives what was gathered."""
    stragglers, gathered = Stragglers(), []

    class Two:
        rank = Rank(index=index, world=2)

        def gather(self, value):
            gathered.append(value)
            return [value, rounds[len(gathered) - 1][1]]

    for mine, _ in rounds:
        pulse = SimpleNamespace(seconds=tuple(mine[0]))
        stragglers.look(Two(), SimpleNamespace(pulse=pulse))
    return gathered


def test_each_round_is_looked_at_by_itself_and_one_is_named_once(caplog):
    fine, slow = rank(1, 30, 1), rank(1, 90, 1)
    rounds = [(rank(1, 29, 1), fine), (rank(2, 49, 71), slow), (rank(3, 69, 141), slow)]
    with caplog.at_level(logging.WARNING, "distcore"):
        gathered = looked(rounds)
    assert gathered[1] == (rank(1, 20, 70)[0], os.getpid(), socket.gethostname())
    assert [each.message[:6] for each in caplog.records] == ["Rank 1"]
    caplog.clear()
    assert len(looked(rounds, index=1)) == 3
    assert not caplog.records
