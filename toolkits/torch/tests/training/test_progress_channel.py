"""A worker's progress arrives in the process that the user started, and never costs it anything."""

import itertools
import os
import resource
import sys
import tempfile

import torch

from distcore_core.progress import Progress, Round
from distcore_testing.rank_jobs import until
from distcore_torch.training.progress_channel import (
    FileReporter,
    Numbers,
    _rounds_of,
    file_progress_channel,
)


def test_numbers_arrive_and_the_file_is_gone_afterwards():
    shown = Progress()
    with file_progress_channel(shown) as progress_channel:
        path = progress_channel.reporter.path
        with progress_channel.reporter.reporting() as worker:
            worker.begin("train", 10, "steps", 64)
            worker.first, worker.done, worker.loss = 3, 7, torch.tensor(0.5)
            assert until(lambda: shown.done == 7, 120)
            assert (shown.stage, shown.total, shown.unit, shown.rows_per_unit) == (
                "train",
                10,
                "steps",
                64,
            )
            assert shown.loss == 0.5
            worker.done, worker.loss = 10, None
    assert (shown.stage, shown.done) == ("", 10)
    assert shown.stages_finished[0][:2] == ("train", 7 * 64)
    assert not os.path.exists(path)


def test_the_last_numbers_arrive_of_a_stage_that_ended_between_two_looks():
    """The loop ends its stage as soon as its last step is done."""
    shown = Progress()
    with (
        file_progress_channel(shown) as progress_channel,
        progress_channel.reporter.reporting() as worker,
    ):
        worker.begin("train", 10, "steps", 64)
        worker.done = 7
        assert until(lambda: shown.done == 7, 120)
        worker.done = 10
        worker.end()
    assert shown.stages_finished[0][:2] == ("train", 640)


def test_workers_that_were_started_again_are_measured_from_where_training_began():
    """An hour for one step since the restart: 99 hours left of ten minutes."""
    shown = Progress()
    for done, first, measured_from in (
        (0, 0, 0),  # a look right after the stage began
        (500, 500, 500),  # a run that is gone on with
        (950, 500, 500),
        (900, 900, 500),  # started again
        (901, 900, 500),
        (450, 400, 400),  # again, and the newest checkpoint was damaged
    ):
        Numbers(done, 1000, None, 64, first).show(shown, bool(shown.stage))
        assert (shown.done, shown.first) == (done, measured_from)
    shown.end()
    assert shown.stages_finished[0].rows == 50 * 64


def test_rounds_arrive_each_once_and_in_order():
    shown, heard = Progress(), []
    shown.on_round.append(heard.append)
    rounds = [a_round(number) for number in range(1, 40)]
    with file_progress_channel(shown) as progress_channel:
        for part in (rounds[:20], rounds[20:]):  # a group that was started again
            with progress_channel.reporter.reporting() as worker:
                worker.begin("train", 10, "steps", 64)
                for each in part:
                    worker.tell(each)
    assert shown.rounds == heard == rounds


def test_a_round_that_was_cut_short_costs_no_other(caplog):
    """The thread that tells of them died, and progress stood still."""
    shown = Progress()
    with file_progress_channel(shown) as channel:
        channel.reporter._write_round(a_round(1))
        with _rounds_of(channel.reporter.path).open("a") as file:  # by a kill
            file.write('{"evaluation": 2')
        for number in (3, 4, 5):
            channel.reporter._write_round(a_round(number))
    assert [each.evaluation for each in shown.rounds] == [1, 3, 4, 5]
    assert "A round that a worker told of cannot be read" in caplog.text


def test_a_round_of_which_the_disk_takes_a_part_is_taken_back(monkeypatch):
    shown = Progress()
    with file_progress_channel(shown) as channel:
        path = _rounds_of(channel.reporter.path)
        channel.reporter._write_round(a_round(1))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, limits[1]))
        try:
            channel.reporter._write_round(a_round(2))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        channel.reporter._write_round(a_round(3))
    assert [each.evaluation for each in shown.rounds] == [1, 3]


def a_round(number):
    best = {
        "value": 0.1 * number,
        "best": 0.5,
        "best_evaluation": 1,
        "patience_left": None,
        "seconds": 0.25,
    }
    place = {"step": 10 * number, "split": "training", "feature": "größe", "metric": "loss"}
    return Round(
        evaluation=number, epoch=number / 3, epochs=30.0, metrics={"training": {}}, **place, **best
    )


def test_a_worker_that_cannot_open_the_file_goes_on(tmp_path):
    with FileReporter(str(tmp_path / "elsewhere")).reporting() as worker:
        worker.begin("train")
        worker.done = 3
    assert not list(tmp_path.iterdir())


def test_nothing_is_shown_of_a_worker_that_never_began():
    shown = Progress()
    with file_progress_channel(shown):
        pass
    assert shown.stages_finished == []


def test_an_interrupt_at_any_line_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    raised = []  # kept, as a traceback keeps what its frames hold
    for lines in itertools.count():
        interrupt = Interrupt(lines)
        sys.settrace(interrupt)
        try:
            with file_progress_channel(Progress()) as channel:
                sys.settrace(None)
                assert os.path.exists(channel.reporter.path)
        except KeyboardInterrupt as error:
            raised.append(error)
        finally:
            sys.settrace(None)
        assert not list(tmp_path.iterdir()), f"after {lines} lines"
        if len(raised) == lines:
            break
    assert len(raised) > 8


class Interrupt:
    """A trace function that raises KeyboardInterrupt after so many lines of the channel's module."""

    def __init__(self, lines):
        self.left = lines

    def __call__(self, frame, event, argument):
        if frame.f_code.co_filename != file_progress_channel.__wrapped__.__code__.co_filename:
            return None
        if event == "line":
            if not self.left:
                sys.settrace(None)
                raise KeyboardInterrupt
            self.left -= 1
        return self
