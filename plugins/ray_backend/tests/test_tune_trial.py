"""What Tune hears of a trial that it runs in a process of the cluster."""

import errno
import os
import threading
from types import SimpleNamespace

import pytest

from distcore_ray import tune_trial
from distcore_search.objective import Objective
from distcore_search.options import AsyncHyperband
from distcore_search.records import (
    ROUNDS,
    SearchWork,
    begin_again,
    begin_record,
    read_record,
    write_record,
)
from distcore_search.rounds import add_round

PARAMETERS = {"trainer.learning_rate": {"space": "uniform", "lower": 0.1, "upper": 1.0}}
RAW = {"trainer.learning_rate": 0.5}


def scheduler(**options):
    return AsyncHyperband.model_validate({"type": "asha", **options})


def told(path, number, seconds, loss=None):
    metrics = {"validation": {"y": {"loss": loss}}}
    found = {"step": 7 * number, "epoch": number, "seconds": seconds, "metrics": metrics}
    add_round(path, found)


def test_a_trial_that_is_gone_on_with_counts_its_rounds_and_seconds_from_where_it_was(
    tmp_path, monkeypatch
):
    """A scheduler compared its ninth round with the third of others. Nor does it hear of a fourth,
    of the trial's score: others were held against it there."""
    work = SearchWork(
        parameters=PARAMETERS, objective=Objective("y", "loss", "minimize"), directory=tmp_path
    )
    folder = work.folder("0000")
    record = begin_record(work, "0000", RAW)
    for number in (1, 2):
        told(folder / ROUNDS, number, 10.0 * number, 1.0 / number)

    def go_on(work, name, raw):
        told(folder / ROUNDS, 2, 21.0, 1 / 2)  # from the checkpoint before it
        told(folder / ROUNDS, 3, 30.0, 1 / 3)
        write_record(folder, {**record, "state": "finished", "score": 1 / 3})

    reports = []
    monkeypatch.setattr("ray.tune.report", reports.append)
    monkeypatch.setattr(tune_trial, "_log_to", lambda path: None)
    job = SimpleNamespace(work=work, function=go_on, variants=[RAW])
    tune_trial.trainable({"number": 0}, job, scheduler(), SimpleNamespace(enter=lambda: None))
    assert [(each["training_iteration"], each["score"]) for each in reports] == [
        (1, 1.0),
        (2, 1 / 2),
        (3, 1 / 3),
    ]
    assert [each["time_this_iter_s"] for each in reports] == [10.0, 10.0, 10.0]


def test_a_trial_whose_rounds_have_no_value_ends_at_max_t(tmp_path, monkeypatch):
    """Its loss is NaN: Tune hears of no round, and never stopped it."""
    work = SearchWork(
        parameters=PARAMETERS, objective=Objective("y", "loss", "minimize"), directory=tmp_path
    )
    over, ended = threading.Event(), threading.Event()

    def no_value(work, name, raw):
        for number in (1, 2, 3):
            told(work.folder(name) / ROUNDS, number, 10.0 * number)
        over.wait(10)
        ended.set()

    monkeypatch.setattr(tune_trial, "_log_to", lambda path: None)
    job = SimpleNamespace(work=work, function=no_value, variants=[RAW])
    place = SimpleNamespace(enter=lambda: None)
    tune_trial.trainable({"number": 0}, job, scheduler(max_t=3), place)
    assert not ended.is_set()
    over.set()


@pytest.mark.parametrize(("number", "again"), [(errno.ENOSPC, ["0000"]), (errno.ENOENT, [])])
def test_a_trial_whose_record_the_system_refused_is_gone_on_with(
    tmp_path, monkeypatch, number, again
):
    work = SearchWork(
        parameters=PARAMETERS, objective=Objective("y", "loss", "minimize"), directory=tmp_path
    )
    begin_record(work, "0000", RAW)

    def refused(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tune_trial, "_log_to", lambda path: None)
    job = SimpleNamespace(work=work, function=refused, variants=[RAW])
    tune_trial.trainable({"number": 0}, job, scheduler(), SimpleNamespace(enter=lambda: None))
    assert read_record(work.folder("0000"))["state"] == "failed"
    assert begin_again(work) == again
