"""Calls from several threads of one process."""

import logging
import os
import shutil
import signal
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest
import torch

import distcore
from distcore.workflow.limited_gpus import limited_gpus
from distcore_core.errors import UserError
from distcore_report.runs import find_runs
from distcore_tabular import module
from distcore_testing import data
from distcore_torch.modes import plain_torch
from distcore_torch.training.determinism import (
    drawing,
    initial_weights,
    one_thread,
    one_training,
)
from distcore_torch.training.scores import _compute


def weights(outcome):
    return (outcome.model / "weights.safetensors").read_bytes()


def test_trainings_in_threads_have_the_weights_of_one_that_is_alone(tmp_path, caplog):
    """torch's random numbers are the process's: initial weights, and what dropout drops, were drawn
    by several threads from one stream."""
    combiner = {"type": "concat", "num_fc_layers": 1, "output_size": 16, "dropout": 0.5}
    config = data.config(str(tmp_path / "cache"), combiner=combiner)
    config["trainer"] = {"epochs": 4, "batch_size": 16}

    def train(name):
        return distcore.train(config, data.table(), output_directory=tmp_path / name, view="none")

    alone = train("alone")
    found, errors, over = [], [], threading.Event()

    def one(name):
        try:
            found.append(weights(train(name)))
        except BaseException as error:
            errors.append(error)

    def load():
        """What a server does meanwhile."""
        while not over.wait(0.01):
            distcore.load(alone.model)

    threads = [threading.Thread(target=one, args=(f"beside {n}",)) for n in range(3)]
    loading = threading.Thread(target=load)
    with caplog.at_level(logging.INFO, "distcore"):
        for each in (*threads, loading):
            each.start()
        for each in threads:
            each.join()
    over.set()
    loading.join()
    assert not errors, errors
    assert found == [weights(alone)] * 3
    assert "Another thread of this process trains; waiting for it" in caplog.text


def test_a_training_that_waits_for_another_says_so(tmp_path):
    """It was shown as one that trains and never comes to a round."""
    config, results = data.config(str(tmp_path / "cache")), tmp_path / "results"

    def train(**more):
        distcore.train(config, data.table(), output_directory=results, view="none", **more)

    def state():
        return [each.state for each in find_runs(results)] if results.is_dir() else []

    thread = threading.Thread(target=train)
    with one_training():
        thread.start()
        while thread.is_alive() and state() != ["waiting"]:
            time.sleep(0.05)
        assert state() == ["waiting"]
        shutil.copytree(results / "experiment_run", results / "killed")
        assert state() == ["waiting", "stopped"], "nobody holds the folder of the second"
    thread.join()
    assert state() == ["finished", "stopped"]
    assert not (results / "experiment_run" / "waiting.json").exists()
    (results / "killed").rename(results / "experiment_next")
    train(model_name="next")  # makes room, as any run that was killed so early
    assert state() == ["finished", "finished"]


def ended_well(child):
    """Assert that a forked process ends with 0 in time."""
    until, ended = time.monotonic() + 20, (0, 0)
    while ended == (0, 0) and time.monotonic() < until:
        time.sleep(0.01)
        ended = os.waitpid(child, os.WNOHANG)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)


def in_a_child(work):
    """Fork; what the child ends with says whether `work` is true there. It never comes back."""
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return child


def forked_beside(block, work, seconds=60):
    """Assert that `work` is true in a child that is forked while another thread is in the block,
    for that many seconds at most."""
    begun, over = threading.Event(), threading.Event()

    def beside():
        with block():
            begun.set()
            over.wait(seconds)

    thread = threading.Thread(target=beside)
    thread.start()
    begun.wait()
    child = in_a_child(work)
    try:
        ended_well(child)
    finally:
        over.set()
        thread.join()


def train_and_load():
    with one_training(), initial_weights():
        return True


@pytest.mark.parametrize("held", [one_training, initial_weights])
def test_a_process_that_is_forked_while_a_thread_trains_can_train_and_load(held):
    """It waited for that thread, which it has not."""
    seconds = 0.5 if held is initial_weights else 60  # a fork waits for numbers drawn
    forked_beside(held, train_and_load, seconds)


def test_a_process_that_is_forked_while_a_thread_computes_computes_in_float32():
    """What another thread's call had set was taken for that of the child's own, for good."""

    def work():
        found = [torch.get_default_dtype()]  # the caller's, which only the other's end put back
        torch.set_default_dtype(torch.float16)
        with plain_torch():
            found.append(torch.get_default_dtype())
        return [*found, torch.get_default_dtype()] == [torch.float64, torch.float32, torch.float16]

    def nested():
        with plain_torch():
            pass
        return torch.get_default_dtype() == torch.float32

    torch.set_default_dtype(torch.float64)
    try:
        forked_beside(plain_torch, work)
        assert torch.get_default_dtype() == torch.float64
        with plain_torch():
            ended_well(in_a_child(nested))
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_process_that_is_forked_while_a_thread_has_gpus_may_name_others(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")

    def work():
        with limited_gpus("1"):
            found = os.environ["CUDA_VISIBLE_DEVICES"]
        return [found, os.environ["CUDA_VISIBLE_DEVICES"]] == ["1", "0"]

    def refused():
        with ThreadPoolExecutor(1) as other, pytest.raises(UserError):
            other.submit(limited_gpus("1").__enter__).result()
        return True

    forked_beside(partial(limited_gpus, "0"), work)
    with limited_gpus("0"):
        ended_well(in_a_child(refused))  # it is still in this thread's block
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "5"


def test_a_fork_waits_for_a_thread_that_computes_a_metric():
    """The child went on with what it had set of warnings, and waited for it."""
    begun, filters = threading.Event(), list(warnings.filters)

    def compute():
        begun.set()
        time.sleep(0.5)
        return 1.0

    metric = SimpleNamespace(compute=compute)
    state = SimpleNamespace(into=lambda metric: None)
    thread = threading.Thread(target=_compute, args=(metric, state, "m"))
    thread.start()
    begun.wait()
    ended_well(
        in_a_child(lambda: warnings.filters == filters and _compute(metric, state, "m") == 1.0)
    )
    thread.join()


def test_a_process_that_is_forked_after_a_prediction_of_several_threads_can_predict(tmp_path):
    """As servers do that load a model before they fork: OpenMP waited in the child for threads that
    only the parent has."""
    config = data.config(str(tmp_path / "cache"))
    outcome = distcore.train(config, data.table(), output_directory=tmp_path / "out", view="none")
    model, before = distcore.load(outcome.model), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.ones(1 << 20).exp_()  # so much is done by both
        expected = model.predict(data.table())

        def predict():
            torch.ones(1 << 20).exp_()
            return model.predict(data.table()).equals(expected)

        ended_well(in_a_child(predict))
    finally:
        torch.set_num_threads(before)


def both_in_a_block(block):
    """Two threads in such a block; the one that began first ends first."""
    inside, other_inside = threading.Event(), threading.Event()

    def first():
        with block():
            inside.set()
            assert other_inside.wait(60)

    def second():
        assert inside.wait(60)
        with block():
            other_inside.set()
            one.join()

    one, other = threading.Thread(target=first), threading.Thread(target=second)
    one.start()
    other.start()
    other.join()


def test_new_threads_compute_on_as_many_as_before(request):
    """After two threads that predicted by an exact model, they computed on one for good."""
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(3)
    both_in_a_block(one_thread)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 3
    with one_thread():
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("before", [None, "5"])
def test_the_gpus_of_a_process_are_as_before_after_two_threads(monkeypatch, before):
    """Those of the first call stayed for the process."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before or "")
    if before is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    both_in_a_block(partial(limited_gpus, "1"))
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before

    def hides(gpus):
        with limited_gpus(gpus):
            return os.environ["CUDA_VISIBLE_DEVICES"]

    with limited_gpus("0,1"), ThreadPoolExecutor(1) as other:
        assert other.submit(hides, [0, 1]).result() == "0,1"
        with pytest.raises(UserError, match="--gpus -1: this process is at work with others"):
            other.submit(hides, -1).result()
        with limited_gpus(None):  # an extension that predicts
            assert hides(-1) == ""
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
        with limited_gpus(-1), limited_gpus("0,1"):
            assert hides(-1) == ""
            assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
            with pytest.raises(UserError, match="at work with others"):
                other.submit(hides, "0,1").result()
        assert other.submit(hides, [0, 1]).result() == "0,1"
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


def test_a_network_given_from_python_waits_for_whoever_draws(monkeypatch):
    """Making it anew, to compare the two, put back the random numbers of a step meanwhile."""
    given, made = torch.nn.Linear(2, 2), threading.Event()
    given.options = {"in_features": 2, "out_features": 2}
    monkeypatch.setattr(module, "_made", lambda *_: made.set() or given)
    describing = threading.Thread(target=lambda: module.describe(given))
    with drawing:
        describing.start()
        assert not made.wait(0.2)
    describing.join()
    assert made.is_set()


def test_warnings_are_as_before_after_evaluations_of_two_threads():
    """The second to end put back what the first had set: every later warning of the program went
    into a list."""
    both, first_done = threading.Event(), threading.Event()

    def first():
        other.start()
        both.wait(0.5)
        return 1.0

    def second():
        both.set()
        first_done.wait()
        return 1.0

    def metric(compute):
        return SimpleNamespace(compute=compute)

    nothing = SimpleNamespace(into=lambda metric: None)
    other = threading.Thread(target=_compute, args=(metric(second), nothing, "second"))
    before = [*warnings.filters], warnings._showwarnmsg_impl
    assert _compute(metric(first), nothing, "first") == 1.0
    first_done.set()
    other.join(20)
    assert not other.is_alive()
    assert ([*warnings.filters], warnings._showwarnmsg_impl) == before
