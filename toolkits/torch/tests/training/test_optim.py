"""Optimizers, clipping and regularisation against torch's plain ones, and their state through
JSON and tensors."""

import gc
import json
import weakref

import pytest
import torch

from distcore_core.errors import CheckpointError
from distcore_torch.train_options import GradientClipping, TrainerOptions
from distcore_torch.training.optim import (
    Clipper,
    Regularizer,
    clip_norm,
    load_optimizer_state,
    make_optimizer,
    optimizer_state,
    set_learning_rate,
)


def options(name, **more):
    return TrainerOptions.model_validate({"optimizer": {"type": name, **more}}).optimizer


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))


def steps(model, optimizer, count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        x = torch.randn(16, 5, generator=generator)

        def closure(x=x):
            optimizer.zero_grad()
            loss = (model(x).squeeze(1) - x.sum(1)).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)


def weights(model):
    return torch.cat([each.detach().flatten() for each in model.parameters()])


ALL = [
    ("sgd", {"momentum": 0.9, "nesterov": True}),
    ("adam", {"amsgrad": True, "weight_decay": 0.01}),
    ("adamw", {}),
    ("rmsprop", {"centered": True, "momentum": 0.5}),
    ("adagrad", {"initial_accumulator_value": 0.1}),
    ("lbfgs", {"max_iter": 4, "history_size": 3, "line_search_fn": "strong_wolfe"}),
]


@pytest.mark.parametrize(("name", "more"), ALL, ids=[each[0] for each in ALL])
def test_optimizers_step_as_torchs_plain_ones_do(name, more):
    ours, theirs = net(), net()
    steps(ours, make_optimizer(options(name, **more), list(ours.parameters()), 0.01), 5)
    plain = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    plain |= {
        "rmsprop": torch.optim.RMSprop,
        "adagrad": torch.optim.Adagrad,
        "lbfgs": torch.optim.LBFGS,
    }
    defaults = {"weight_decay": 0.0} if name == "adamw" else {}
    defaults |= {"history_size": 100} if name == "lbfgs" else {}
    steps(theirs, plain[name](theirs.parameters(), lr=0.01, **{**defaults, **more}), 5)
    assert torch.allclose(weights(ours), weights(theirs), rtol=1e-5, atol=1e-6)
    assert not torch.equal(weights(ours), weights(net()))


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adagrad"])
def test_fused_kernels_are_used_where_torch_has_them(name):
    optimizer = make_optimizer(options(name), list(net().parameters()), 0.01)
    assert optimizer.param_groups[0]["fused"]
    of_complex = torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    optimizer = make_optimizer(options(name), [of_complex], 0.01)
    assert not optimizer.param_groups[0]["fused"]  # they take none


@pytest.mark.parametrize(("name", "more"), ALL, ids=[each[0] for each in ALL])
def test_state_through_json_continues_to_the_same_bits(name, more):
    through, straight = net(), net()
    first = make_optimizer(options(name, **more), list(through.parameters()), 0.01)
    steps(through, first, 4)
    state, tensors = optimizer_state(first)
    second = make_optimizer(options(name, **more), list(through.parameters()), 0.01)
    load_optimizer_state(
        second, json.loads(json.dumps(state)), {key: each.clone() for key, each in tensors.items()}
    )
    steps(through, second, 4, seed=2)
    whole = make_optimizer(options(name, **more), list(straight.parameters()), 0.01)
    steps(straight, whole, 4)
    steps(straight, whole, 4, seed=2)
    assert torch.equal(weights(through), weights(straight))


def test_state_of_another_model_is_refused():
    optimizer = make_optimizer(options("adam"), list(net().parameters()), 0.01)
    model = net()
    mine = make_optimizer(options("adam"), list(model.parameters()), 0.01)
    steps(model, mine, 1)
    state, tensors = optimizer_state(mine)
    tensors["0.exp_avg"] = torch.zeros(3)
    with pytest.raises(CheckpointError, match="exp_avg of parameter 0"):
        load_optimizer_state(optimizer, state, tensors)


def gradients(model, scale):
    generator = torch.Generator().manual_seed(5)
    for each in model.parameters():
        each.grad = scale * torch.randn(each.shape, generator=generator)
    return [each.grad.clone() for each in model.parameters()]


@pytest.mark.parametrize("scale", [1e-3, 10.0])
def test_global_norm_is_clipped_as_torch_does(scale):
    model = net()
    before = gradients(model, scale)
    Clipper(GradientClipping(clipglobalnorm=0.5))(list(model.parameters()))
    norm = torch.cat([each.flatten() for each in before]).norm()
    factor = min(1.0, float(0.5 / (norm + 1e-6)))
    for each, grad in zip(model.parameters(), before, strict=True):
        assert torch.allclose(each.grad, grad * factor)


@pytest.mark.parametrize("other", [torch.float32, torch.float64])
def test_norms_of_one_kind_and_of_several_have_torchs_bits(other):
    generator = torch.Generator().manual_seed(3)
    kinds = (torch.float32, other, torch.float32)
    gradients = [
        torch.randn(size, 3, generator=generator).to(kind)
        for size, kind in zip((300, 7, 1), kinds, strict=True)
    ]
    expected = torch.nn.utils.get_total_norm(gradients)
    bound = float(expected) / 3
    scaled = [each * (bound / (float(expected) + 1e-6)) for each in gradients]
    clip_norm(gradients, bound)
    assert all(torch.equal(*pair) for pair in zip(gradients, scaled, strict=True))


def test_values_are_clipped_and_none_clips_nothing():
    model = net()
    before = gradients(model, 10.0)
    Clipper(None)(list(model.parameters()))
    assert all(torch.equal(a.grad, b) for a, b in zip(model.parameters(), before, strict=True))
    Clipper(GradientClipping(clipglobalnorm=None, clipvalue=0.1))(list(model.parameters()))
    assert max(float(each.grad.abs().max()) for each in model.parameters()) == pytest.approx(0.1)


@pytest.mark.parametrize("kind", ["l1", "l2", "l1_l2"])
def test_regularizer_adds_the_gradient_of_its_penalty(kind):
    model = net()
    parameters = list(model.parameters())
    gradients(model, 0.0)
    regularizer = Regularizer(kind, 0.3)
    unused = torch.nn.Parameter(torch.ones(2))
    regularizer([unused, *parameters])
    assert unused.grad is None
    penalty = sum(
        (0.3 * each.abs().sum() if "l1" in kind else 0)
        + (0.3 * each.square().sum() if "l2" in kind else 0)
        for each in parameters
    )
    for each, expected in zip(parameters, torch.autograd.grad(penalty, parameters), strict=True):
        assert torch.allclose(each.grad, expected)
    assert regularizer.penalty(parameters).item() == pytest.approx(penalty.item())


def test_set_learning_rate():
    optimizer = make_optimizer(options("adam"), list(net().parameters()), 0.01)
    set_learning_rate(optimizer, 0.5)
    assert optimizer.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("name", ["adam", "sgd", "rmsprop"])
def test_an_optimizer_ends_with_whoever_made_it(name):
    """Its state is twice the weights, and a rare collector would find it late."""
    model = net()
    optimizer = make_optimizer(options(name), list(model.parameters()), 0.01)
    steps(model, optimizer, 1)
    gone = weakref.ref(optimizer)
    gc.disable()
    try:
        del optimizer
        assert gone() is None
    finally:
        gc.enable()
