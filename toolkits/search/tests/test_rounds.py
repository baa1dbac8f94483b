"""Rounds as lines of JSON: whole ones are told once, torn ones passed over, a resumed trial's
are not told again."""

import errno
import json
import os
import resource
from typing import ClassVar

import pytest

from distcore_core.errors import UserError
from distcore_search.rounds import Follower, Rounds, RoundsOptions, add_round, rounds_of
from distcore_testing import ExtensionSuite, PluginSuite

METRICS = {"validation": {"y": {"loss": 0.5}}}


class TestPlugin(PluginSuite):
    kind, name = "extensions", "rounds"
    options: ClassVar = {"path": "rounds.jsonl"}


class TestRounds(ExtensionSuite):
    name = "rounds"
    events = ("epoch_finished",)

    def options_in(self, folder):
        return {"path": str(folder / "rounds.jsonl")}


def written(path):
    return Rounds(RoundsOptions(path=str(path)))


def test_rounds_are_told_once(tmp_path):
    path = tmp_path / "deep" / "rounds.jsonl"
    follower, rounds = Follower(path), written(path)
    assert list(follower.new()) == []
    rounds.epoch_finished(1, 5, METRICS)
    rounds.epoch_finished(2, 10, METRICS)
    assert [(each.number, each.step, each.metrics) for each in follower.new()] == [
        (1, 5, METRICS),
        (2, 10, METRICS),
    ]
    assert list(follower.new()) == []


def test_a_torn_line_is_passed_over_and_a_round_that_comes_again_is_not_new(tmp_path):
    """The trial was killed while it wrote round 2, and goes on from the checkpoint of round 1."""
    path = tmp_path / "rounds.jsonl"
    written(path).epoch_finished(1, 5, METRICS)
    with open(path, "a") as file:
        file.write(json.dumps({"step": 10})[:-4])
    follower = Follower(path)
    assert [each.number for each in follower.new()] == [1]
    again = written(path)
    again.epoch_finished(2, 10, METRICS)
    assert [(each.number, each.step) for each in follower.new()] == [(2, 10)]
    again.epoch_finished(1, 5, METRICS)
    again.epoch_finished(2, 10, METRICS)
    assert list(follower.new()) == []
    assert [(each.number, each.step) for each in Follower(path).new()] == [(1, 5), (2, 10)]


def test_a_damaged_line_is_told_once_with_its_number_and_a_torn_end_where_nobody_writes(
    tmp_path, caplog
):
    path = tmp_path / "rounds.jsonl"
    written(path).epoch_finished(1, 5, METRICS)
    assert len(rounds_of(path)) == 1
    assert not caplog.messages
    with open(path, "a") as file:
        file.write("{}\n\n{")
    follower = Follower(path)
    assert [len(list(follower.new())) for _ in range(2)] == [1, 0]
    (said,) = caplog.messages
    assert f"{path}, line 2, is damaged" in said
    caplog.clear()
    assert len(rounds_of(path)) == 1
    (said,) = caplog.messages
    assert f"{path}, line 4, is damaged or was cut short by a kill" in said
    caplog.clear()
    add_round(path, {"step": 10, "epoch": 2, "seconds": 1.0, "metrics": METRICS})
    assert len(rounds_of(path)) == 2
    assert not caplog.messages  # each part of a search reads the file, some several times


def test_a_round_of_which_the_disk_takes_a_part_is_an_error_and_taken_back(tmp_path):
    path, round_ = tmp_path / "rounds.jsonl", {"step": 5, "seconds": 1.0, "metrics": METRICS}
    add_round(path, round_)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            add_round(path, {**round_, "step": 10})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    add_round(path, {**round_, "step": 15})
    assert [each.step for each in rounds_of(path)] == [5, 15]


def test_seconds_go_on_from_the_attempt_before(tmp_path):
    """A scheduler by seconds took a trial that was gone on with for one that had just begun."""
    path = tmp_path / "rounds.jsonl"
    add_round(path, {"step": 5, "epoch": 1, "seconds": 100.0, "metrics": METRICS})
    written(path).epoch_finished(2, 10, METRICS)
    first, second = Follower(path).new()
    assert first.seconds == 100.0
    assert 100.0 <= second.seconds < 200.0


def test_training_ends_with_the_evaluation_that_was_asked_for_and_not_before(tmp_path):
    rounds = Rounds(RoundsOptions(path=str(tmp_path / "rounds.jsonl"), until=10))
    assert rounds.epoch_finished(1, 5, METRICS) is None
    assert rounds.epoch_finished(2, 10, METRICS)


def test_training_ends_there_too_if_the_disk_is_full(tmp_path, monkeypatch, caplog):
    """It trained to its full length, to another model than that of the recorded round."""

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    rounds = Rounds(RoundsOptions(path=str(tmp_path / "rounds.jsonl"), until=10))
    monkeypatch.setattr("distcore_search.rounds.append", full)
    assert rounds.epoch_finished(1, 5, METRICS) is None
    assert rounds.epoch_finished(2, 10, METRICS)
    assert "lacks the round of step 10" in caplog.text


def test_a_pipe_or_a_folder_in_its_place_is_refused(tmp_path):
    """The search waited for its first byte for ever."""
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (pipe, folder):
        with pytest.raises(UserError, match=f"{path} is damaged.*Remove it and go on"):
            written(path)
        with pytest.raises(UserError, match=f"{path} is damaged.*Remove it and go on"):
            rounds_of(path)
