"""Encoders of one shape as one: no bit is another, and whoever looks at one of them sees it."""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from distcore_core.contracts import Column
from distcore_tabular import alike, encoders
from distcore_tabular.network import Inputs
from distcore_tabular.options_parts import PleOptions
from distcore_torch import products
from distcore_torch.batch import Batch, Layout


def ple(number, bins=32, **options):
    """An encoder of `bins` bins, 32 outputs and a rectifier, as `init` writes them."""
    given = {"type": "ple", "output_size": 32, "activation": "relu", **options}
    edges = np.sort(np.random.default_rng(number).normal(size=bins + 1)).astype(np.float32)
    return encoders.Ple(edges, PleOptions.model_validate(given))


def inputs_of(make, count=6):
    torch.manual_seed(0)
    made = {f"x{number}": make(number) for number in range(count)}
    return Inputs(made, {name: Column(name=name, dtype="float32") for name in made})


def batch_of(inputs, rows, seed=0):
    names = [f"x{number}" for number in range(len(inputs.sizes))]
    layout = Layout.of([Column(name=name, dtype="float32") for name in names])
    drawn = torch.randn(rows, len(names), generator=torch.Generator().manual_seed(seed))
    return Batch(drawn.view(torch.int32), layout)


def one_by_one(inputs):
    for each in inputs.alike:
        each.can = lambda rows: False
    return inputs


def mixed(number):
    """Two shapes, one between others, and encoders that go by themselves."""
    if number in (3, 9):
        return encoders.Passthrough()
    if number == 6:
        return ple(number, dropout=0.5)
    return ple(number, bins=16 if number > 6 else 32, use_bias=number != 11)


@pytest.mark.parametrize("rows", [1, 2, 37, 128, 512, 513])
@pytest.mark.parametrize("make", [ple, mixed])
def test_training_and_predictions_have_the_bits_of_one_after_another(make, rows):
    both = inputs_of(make, 13), one_by_one(inputs_of(make, 13))
    assert both[0].alike
    for net in both:
        optimizer = torch.optim.Adam(net.parameters(), 0.01)
        for step in range(3):
            optimizer.zero_grad()
            torch.manual_seed(step)
            net(batch_of(net, rows, step)).square().sum().backward()
            optimizer.step()
    ours, theirs = (net.state_dict() for net in both)
    assert list(ours) == list(theirs)
    assert all(ours[name].equal(theirs[name]) for name in ours)
    with torch.no_grad():
        found = [net.eval()(batch_of(net, rows)) for net in both]
    assert found[0].equal(found[1])


def test_neighbours_of_one_shape_are_one_step_of_the_plan():
    assert [kind for kind, *_ in inputs_of(ple, 6).plan] == ["alike"]
    kinds = [(kind, len(names)) for kind, names, _ in inputs_of(mixed, 13).plan]
    # Columns that pass through are read together, at the place of the first.
    expected = [("alike", 3), ("block", 2), ("alike", 2), ("one", 1), ("alike", 3)]
    assert kinds == [*expected, ("one", 1), ("one", 1)]


@pytest.mark.parametrize(
    "encoder",
    [
        encoders.Passthrough(),
        ple(0, dropout=0.1),
        ple(0, activation="tanh"),
        ple(0, activation=None),
        ple(0, norm="batch"),
        ple(0, num_layers=2),
    ],
)
def test_what_draws_rounds_otherwise_or_has_other_layers_goes_by_itself(encoder):
    assert alike.shape_of(encoder) is None


def test_shapes_are_those_of_weight_and_bias():
    assert alike.shape_of(ple(0)) == alike.shape_of(ple(1)) != alike.shape_of(ple(0, bins=31))
    assert alike.shape_of(ple(0)) != alike.shape_of(ple(0, use_bias=False))


def test_a_stretch_has_as_many_as_stay_in_a_cache(monkeypatch):
    monkeypatch.setattr(alike, "MOST", 3)
    assert alike.stretches([1] * 7) == [(0, 3), (3, 6)]
    assert alike.stretches([1, 1, 2, None, None, 3, 3, 1]) == [(0, 2), (5, 7)]
    assert alike.stretches([]) == []


@pytest.fixture
def together():
    (found,) = inputs_of(ple).alike
    assert found.can(128)
    return found


class Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_exact_trainings_in_other_threads_are_theirs(together):
    """Of two ranks that overlapped, one left all layers of the process to other products."""
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        blocks = [(pool, products.by_weight_alone()) for pool in (one, other)]
        for pool, block in blocks:
            pool.submit(block.__enter__).result()
        assert together.can(128)
        assert not one.submit(together.can, 128).result()
        for pool, block in blocks:
            pool.submit(block.__exit__, None, None, None).result()
        assert all(each.submit(together.can, 128).result() for each in (one, other))
    assert together.can(128)


class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "while_",
    [
        Functions,  # exact training
        products.by_weight_alone,  # one of its parts
        lambda: torch.autocast("cpu", torch.bfloat16),
    ],
)
def test_who_looks_at_functions_or_has_other_products_sees_one_after_another(together, while_):
    with while_():
        assert not together.can(128)


@pytest.mark.parametrize(
    "watch",
    [
        lambda part: part.register_forward_hook(lambda *_: None),
        lambda part: part.register_forward_pre_hook(lambda *_: None),
        lambda part: part.register_full_backward_hook(lambda *_: None),
        lambda part: part.register_full_backward_pre_hook(lambda *_: None),
    ],
)
@pytest.mark.parametrize("of", [lambda each: each, lambda each: each.fc_stack.layers[0].linear])
def test_a_hook_on_one_of_them_is_called(watch, of):
    net = inputs_of(ple)
    handle = watch(of(net.feature_x3))
    assert not net.alike[0].can(128)
    handle.remove()
    assert net.alike[0].can(128)


def test_more_rows_and_other_numbers_go_one_after_another(together):
    assert not together.can(alike.MOST_ROWS + 1)
    assert not inputs_of(ple).double().alike[0].can(128)


def test_bits_are_compared_once_a_shape_and_decide(monkeypatch):
    asked = []
    monkeypatch.setattr(alike, "_same_bits", lambda *shape: asked.append(shape))
    net = inputs_of(ple)
    assert not net.alike[0].can(128)
    with torch.no_grad():
        assert not net.alike[0].can(7)
    threads = torch.get_num_threads()
    assert asked == [(6, 128, 32, 33, True, True, threads), (6, 7, 32, 33, True, False, threads)]


def test_a_difference_is_seen(monkeypatch):
    real = products.linear
    monkeypatch.setattr(products, "linear", lambda x, w, b=None: real(x, w, b) * (1 + 2**-22))
    assert not alike._same_bits.__wrapped__(3, 64, 32, 33, True, True, 1)
    monkeypatch.undo()
    assert alike._same_bits.__wrapped__(1, 64, 32, 33, True, True, 1)


def test_who_counts_operators_counts_no_trial(monkeypatch):
    monkeypatch.setattr(alike, "_same_bits", lambda *_: pytest.fail("it was tried"))
    with Operators():
        assert inputs_of(ple).alike[0].can(128)


def test_the_edges_go_where_the_module_goes_and_copies_are_their_own():
    net = inputs_of(ple)
    other = copy.deepcopy(net)
    with torch.no_grad():
        for each in other.parameters():
            each.zero_()
    batch = batch_of(net, 128)
    assert not other(batch).any()
    assert net(batch).any()
    wide = net.double()
    assert wide.alike[0]._low.dtype == torch.float64
    assert wide(batch).dtype == torch.float64


def test_a_parameter_that_is_frozen_stays_so():
    net = inputs_of(ple)
    net.feature_x1.requires_grad_(False)
    net(batch_of(net, 128)).sum().backward()
    assert net.feature_x1.fc_stack.layers[0].linear.weight.grad is None
    assert net.feature_x2.fc_stack.layers[0].linear.weight.grad is not None
