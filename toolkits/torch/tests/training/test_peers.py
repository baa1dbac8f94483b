"""Ranks that watch each other: which of them does, and whom."""

import os
import re

import pytest

from distcore_core.contracts import Rank
from distcore_torch.training import heartbeat, peers
from distcore_torch.training.heartbeat import Listener


@pytest.mark.parametrize(
    ("mine", "watched"),
    [(0, [(0, False), (1, True), (3, True)]), (1, [(0, True), (1, False), (3, False)]), (3, [])],
)
def test_of_one_place_the_first_watches_the_others_and_the_second_one_the_first(
    tmp_path, mine, watched
):
    ranks = [(f"place {rank == 2}", 100 + rank, str(tmp_path / f"{rank}")) for rank in range(4)]
    made = [Listener(tmp_path / f"{rank}") for rank in range(4)]
    found = peers._watched(ranks, mine)
    assert [(each.rank, each.ours) for each in found] == watched
    assert [(each.rank, each.ours) for each in peers._watched(ranks, 2)] == [(2, True)]
    assert all(each.process == 100 + each.rank for each in found)
    for each in [*made, *(each.listener for each in found)]:
        each.close()


def test_ranks_in_two_containers_of_one_host_train_and_watch_themselves(monkeypatch):
    """With `docker run --network host` the host's name and boot are the same, and neither files nor
    process numbers are: training ended with FileNotFoundError of the other one's heartbeat."""

    class Strategy:
        rank = Rank(index=1, world=2)

        def gather(self, value):
            if value is None:
                return [None, None]
            place, process, path = value
            other = re.sub(r" \d+$", " 1", place)  # its files are in another namespace
            return [(other, process, f"{path}-of-the-other"), value]

    monkeypatch.delenv(heartbeat.FILE, raising=False)
    watches = []
    monkeypatch.setattr(peers, "_look", lambda watch, last_words, over: watches.append(watch))
    with peers.watching(Strategy(), None):
        pass
    ((only,),) = [watch.ranks for watch in watches]
    assert (only.rank, only.process, only.ours) == (1, os.getpid(), True)


def test_a_rank_whose_heartbeat_cannot_be_opened_is_not_watched(tmp_path):
    made = Listener(tmp_path / "1")
    ranks = [("place", 7, str(tmp_path / "none")), ("place", os.getpid(), str(tmp_path / "1"))]
    (found,) = peers._watched(ranks, 1)
    assert (found.rank, found.ours) == (1, False)
    for each in (made, found.listener):
        each.close()


def test_a_rank_that_is_done_is_not_to_blame_for_what_the_others_take(monkeypatch):
    """It was told as one that starts, and ended, while rank 0 wrote the model."""

    class Strategy:
        rank = Rank(index=0, world=2)

        def gather(self, value):
            return [value, value]

    monkeypatch.delenv(heartbeat.FILE, raising=False)
    with peers.watching(Strategy(), None):
        written = heartbeat.heartbeat()
        with written.during(heartbeat.PREPARING):
            pass
        assert written.pulse.doing == heartbeat.STARTING
    assert written.pulse.doing == heartbeat.WAITING
