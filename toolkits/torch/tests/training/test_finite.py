"""What is not finite is seen, cheaply and only there, and nothing of it counts."""

import logging
import shutil
from pathlib import Path

import pytest
import torch

from distcore_core.errors import ArtifactError, Diverged
from distcore_testing.loops import TinyNet, TinyRun, tiny_loop
from distcore_torch.training import checkpoint
from distcore_torch.training.checkpoint import Checkpoint
from distcore_torch.training.finite import Watch, not_finite
from distcore_torch.training.state import TrainState
from distcore_torch.training.strategy import SingleProcess
from distcore_torch.training.torch_model import load_weights

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_one_number_among_many_is_seen(value, dtype):
    tensors = {name: torch.ones(7, 11, dtype=dtype) for name in "abc"}
    tensors |= {"empty": torch.zeros(0), "whole": torch.ones(3, dtype=torch.int64)}
    assert not_finite(tensors.items()) == []
    tensors["b"][3, 4] = value
    assert not_finite(tensors.items()) == ["b"]


def test_large_finite_numbers_are_fine_although_their_sum_is_not():
    largest = torch.finfo(torch.float32).max
    assert (
        not_finite([("mask", torch.full((9,), largest)), ("half", torch.full((9999,), 6e4).half())])
        == []
    )


def loop_of(tmp_path, **options):
    run = TinyRun(
        {"epochs": 3, "steps_per_checkpoint": 4, **options}, checkpoints=str(tmp_path), norm=True
    )
    return tiny_loop(run, SingleProcess())


def test_a_mask_that_was_infinite_from_the_beginning_may_stay_so():
    module = TinyNet()
    module.register_buffer("mask", torch.tensor([0.0, -INF]))
    watch = Watch(module, torch.optim.SGD(module.parameters(), 0.1), SingleProcess(), ["y", "z"])
    watch.check(0, 1, [1.0, 1.0])
    kept = {"weights/mask": module.mask, "best/mask": module.mask}
    kept["callbacks/0/lowest"] = torch.tensor(INF)
    assert watch.flaw(Checkpoint(Path("kept"), 1, kept, {})) == ""
    module.last.bias.data[0] = -INF
    with pytest.raises(
        Diverged,
        match=r"The loss of z became nan between steps 0 and 1. After step 1 .* \(last.bias\)",
    ):
        watch.check(0, 1, [1.0, NAN])


def test_a_round_without_a_finite_value_is_never_the_best():
    state = TrainState()
    assert not state.judge(None, True, {"step": 1})
    assert (state.best, state.rounds_without_improvement) == ({}, 1)
    assert state.judge(0.5, True, {"step": 2})
    assert not state.judge(None, True, {"step": 3})
    assert state.best == {"step": 2, "value": 0.5}


def test_where_no_round_has_a_value_the_model_is_the_last_steps(tmp_path, caplog, monkeypatch):
    loop, _, _ = loop_of(tmp_path)
    monkeypatch.setattr(loop.monitor, "value", lambda scores: None)
    finished = loop.run()
    assert finished.state.best == {}
    for name, each in finished.best_weights.items():
        assert torch.equal(each, finished.last_weights[name])
    assert "No evaluation gave a finite validation" in caplog.text


@pytest.mark.parametrize("place", ["weights", "moments"])
def test_what_diverges_in_the_last_step_is_an_error(tmp_path, place):
    """Its loss was still finite."""
    loop, _, _ = loop_of(tmp_path)
    module, step = loop.work.module, loop.stepper.step

    def diverge(*arguments):
        asked = step(*arguments)
        if loop.state.step == loop.work.plan.total_steps - 1:
            state = loop.stepper.optimizer.state[module.last.weight]
            (module.last.weight.data if place == "weights" else state["exp_avg"])[0, 0] = NAN
        return asked

    loop.stepper.step = diverge
    with pytest.raises(
        Diverged,
        match=r"After step 30 the weights are not finite \((last.weight|optimizer/\d.exp_avg)\)",
    ):
        loop.run()
    assert [each.name for each in checkpoint.list_checkpoints(tmp_path)] == [
        "step-00000028",
        "step-00000024",
    ]


def test_a_loss_that_is_not_finite_once_while_the_weights_stay_finite_is_told(tmp_path, caplog):
    loop, loader, _ = loop_of(tmp_path)
    loader.actions[5] = lambda: loop.stepper.sums.fill_(INF)
    finished = loop.run()
    assert "The loss of y became inf between steps 4 and 8; the weights are finite" in caplog.text
    losses = finished.state.statistics["training"]["y"]["loss"]
    assert [value is None for value in losses] == [False, True, *[False] * (len(losses) - 2)]


def test_a_checkpoint_of_nan_from_before_is_passed_over(tmp_path, caplog):
    loop, _, _ = loop_of(tmp_path)
    loop.run()
    newest, before = checkpoint.list_checkpoints(tmp_path)
    found = checkpoint.load(newest)
    found.tensors["weights/last.bias"].fill_(NAN)
    shutil.rmtree(newest)
    checkpoint.save(tmp_path, found.step, found.tensors, found.state)
    again, _, _ = loop_of(tmp_path)
    again.resume(tmp_path)
    assert again.state.step == checkpoint.load(before).step
    assert "last.bias in it holds NaN or infinity" in caplog.text


def test_a_model_of_nan_is_refused():
    module = TinyNet()
    weights = {name: each.clone() for name, each in module.state_dict().items()}
    weights["last.bias"][0] = NAN
    with pytest.raises(
        ArtifactError, match=r"The weights in model are not finite \(last.bias holds"
    ):
        load_weights(module, weights, "model")


def test_an_old_checkpoint_that_cannot_be_removed_is_told_once(tmp_path, caplog, monkeypatch):
    def refuse(path):
        raise OSError(16, "Device or resource busy", str(path))

    monkeypatch.setattr(checkpoint, "remove_directory", refuse)
    with caplog.at_level(logging.WARNING, "distcore"):
        for step in range(1, 6):
            checkpoint.save(tmp_path, step, {"weight": torch.ones(2)}, {})
    assert checkpoint.load_newest(tmp_path).step == 5
    told = [
        each
        for each in caplog.messages
        if "step-00000001 cannot be removed (Device or resource busy)" in each
    ]
    assert len(told) == 1
