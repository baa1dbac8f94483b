"""Initializers, norms and stacks of fully connected layers."""

import inspect
import math
import re
from types import SimpleNamespace

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn import functional as F

from distcore_core.errors import UserError
from distcore_tabular.layers import (
    ACTIVATIONS,
    INITIALIZERS,
    BatchNorm,
    FCLayer,
    FCStack,
    fc_stack,
    initialize,
    make_norm,
)
from distcore_tabular.options_network import (
    FLAG,
    INITIALIZER_ARGUMENTS,
    NEEDED,
    NORM_ARGUMENTS,
    NUMBER,
    NUMBER_OR_NULL,
    WHOLE,
    ConcatOptions,
)


def test_a_stack_is_linear_norm_activation_dropout_layer_after_layer():
    torch.manual_seed(0)
    stack = FCStack(
        3, [{"output_size": 5}, {"output_size": 2, "activation": "tanh"}], activation="relu"
    )
    value = torch.randn(4, 3)
    first, second = stack.layers
    by_hand = torch.tanh(second.linear(torch.relu(first.linear(value))))
    torch.testing.assert_close(stack(value), by_hand)
    assert stack.output_size == 2


def test_no_layers_leave_the_input_as_it_is():
    stack = FCStack(3, None, 0, output_size=7)
    value = torch.randn(4, 3)
    assert stack(value) is value
    assert stack.output_size == 3


def test_norm_and_dropout_apply_to_the_input_too():
    stack = FCStack(3, None, 0, norm="layer", dropout=0.5)
    value = torch.randn(4, 3)
    torch.testing.assert_close(stack.eval()(value), F.layer_norm(value, [3]))
    assert (stack.train()(value) == 0).any()


def test_layers_override_the_defaults_one_by_one():
    stack = FCStack(
        3,
        [{}, {"norm": None, "dropout": 0.0, "use_bias": False}],
        norm="batch",
        dropout=0.1,
        output_size=4,
    )
    kinds = [[type(module) for module in layer.after] for layer in stack.layers]
    assert kinds == [[BatchNorm, nn.ReLU, nn.Dropout], [nn.ReLU]]
    assert stack.layers[1].linear.bias is None


def test_residual_adds_only_where_sizes_agree():
    stack = FCStack(3, [{"output_size": 5}, {"output_size": 5}], residual=True)
    value = torch.randn(4, 3)
    hidden = stack.layers[0](value)
    torch.testing.assert_close(stack(value), hidden + stack.layers[1](hidden))


@pytest.mark.parametrize("rows", [0, 1])
def test_batch_norm_takes_a_batch_without_variance(rows):
    norm = BatchNorm(3)
    norm(torch.randn(16, 3) * 2 + 1)
    before = norm.running_mean.clone()
    value = torch.randn(rows, 3, requires_grad=True)
    out = norm.train()(value)
    torch.testing.assert_close(out, norm.eval()(value))
    out.sum().backward()
    assert norm.weight.grad is not None
    assert torch.equal(norm.running_mean, before)


def test_batch_norm_is_torchs_for_more_rows():
    torch.manual_seed(0)
    ours, theirs, value = (
        make_norm("batch", 3, {"momentum": 0.5}),
        nn.BatchNorm1d(3, momentum=0.5),
        torch.randn(8, 3),
    )
    torch.testing.assert_close(ours(value), theirs(value))
    torch.testing.assert_close(ours.running_var, theirs.running_var)


def test_initializers_by_name_and_with_arguments():
    tensor = torch.empty(3, 4)
    initialize(tensor, {"type": "constant", "val": 2.5})
    assert (tensor == 2.5).all()
    initialize(tensor, "identity")
    assert torch.equal(tensor, torch.eye(3, 4))
    with pytest.raises(UserError, match=r"Initializer 'eye' cannot fill .*Give its arguments"):
        initialize(torch.empty(3), "eye")


EXAMPLES = {NUMBER: 0.5, NUMBER_OR_NULL: None, WHOLE: 1, FLAG: True}


def made_with(**options):
    given = ConcatOptions.model_validate({"num_fc_layers": 1, **options})
    return fc_stack(4, given, 1)


@pytest.mark.parametrize("name", INITIALIZERS)
def test_what_options_take_for_an_initializer_torch_takes(name):
    """What torch lacked or could not take was told as the plugin's own mistake, after encoding."""
    kinds = INITIALIZER_ARGUMENTS.get(name, {})
    arguments = {
        each: EXAMPLES[kind] if isinstance(kind, str) else kind[0] for each, kind in kinds.items()
    }
    if name == "dirac":  # for convolutions
        return
    made_with(weights_initializer={"type": name, **arguments})
    if name not in NEEDED:
        made_with(weights_initializer=name)
    for each, kind in kinds.items():
        for wrong in ("x", True, [1], None, math.inf, 10**400):
            with pytest.raises(ValidationError, match=f"{each} of initializer {name} should be"):
                made_with(weights_initializer={"type": name, **arguments, each: wrong})
        for word in () if isinstance(kind, str) else kind:
            made_with(weights_initializer={"type": name, **arguments, each: word})
    needed = NEEDED.get(name)
    for without in (name, {"type": name}) if needed else ():
        with pytest.raises(ValidationError, match=f"initializer {name} needs {needed}"):
            made_with(weights_initializer=without)


@pytest.mark.parametrize("norm", NORM_ARGUMENTS)
def test_what_options_take_for_a_norm_torch_takes(norm):
    """A word for a number was a TypeError of torch's in the first batch."""
    kinds = NORM_ARGUMENTS[norm]
    made = made_with(norm=norm, norm_params={each: EXAMPLES[kind] for each, kind in kinds.items()})
    made(torch.randn(8, 4))
    flags = {each: 1 for each, kind in kinds.items() if kind == FLAG}
    made_with(norm=norm, norm_params=flags)(torch.randn(8, 4))
    for each, kind in kinds.items():
        for wrong in ("x", 0.5 if kind == FLAG else True, 2 if kind == FLAG else [1]):
            with pytest.raises(ValidationError, match=f"{each} of a norm should be {kind}"):
                made_with(norm=norm, norm_params={each: wrong})


@pytest.mark.parametrize("name", ACTIVATIONS, ids=str)
def test_every_activation_keeps_the_shape(name):
    assert ACTIVATIONS[name]()(torch.randn(4, 3)).shape == (4, 3)


def test_the_seed_decides_the_weights():
    torch.manual_seed(3)
    first = FCStack(3, None, 2).state_dict()
    torch.manual_seed(3)
    again = FCStack(3, None, 2).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_the_arguments_that_options_know_are_torchs() -> None:
    """Options are checked without torch, by tables of their own."""
    added = {"tensor", "generator", "num_features", "normalized_shape", "device", "dtype"}
    for name, function in INITIALIZERS.items():
        found = set(inspect.signature(function).parameters) - added
        assert found == set(INITIALIZER_ARGUMENTS.get(name, ())), name
    for name, kind in (("batch", torch.nn.BatchNorm1d), ("layer", torch.nn.LayerNorm)):
        assert set(inspect.signature(kind).parameters) - added - {"bias"} == set(
            NORM_ARGUMENTS[name]
        ) - {"bias"}, name


def stack_options(**more):
    names = inspect.signature(FCLayer).parameters
    given = {
        name: more.get(name, each.default) for name, each in names.items() if name != "input_size"
    }
    return SimpleNamespace(**given, fc_layers=more.get("fc_layers"))


@pytest.mark.parametrize(
    ("layers", "options", "said"),
    [
        (1, {"output_size": 10**12}, r"output_size: 1000000000000 .* of one layer .* take 12.0 TB"),
        (
            10**9,
            {"output_size": 64},
            r"output_size: 64 .* 1000000000 layers \(num_fc_layers, the first over 3 inputs\) of that",
        ),
        (2, {"fc_layers": [{}, {"output_size": 10**11}]}, r"output_size: 100000000000 is too"),
    ],
)
def test_more_than_the_memory_is_refused_before_torch_is_asked(layers, options, said):
    with pytest.raises(UserError, match=said) as caught:
        fc_stack(3, stack_options(**options), layers)
    assert re.search(
        r"B of memory are free\. .* Lower output_size or the number", str(caught.value)
    )


def test_layers_that_fit_one_by_one_are_refused_if_they_do_not_together(monkeypatch):
    """Each was compared with all the memory, before any was made."""
    monkeypatch.setattr("distcore_tabular.layers.free_bytes", lambda: 8 << 20)
    layers = [{"output_size": 1000}] * 3 + [{"output_size": 500}]
    with pytest.raises(
        UserError,
        match=r"output_size: 1000 .* 4 layers \(fc_layers\), the widest of that width, take",
    ):
        fc_stack(3, stack_options(fc_layers=layers), 0)
    assert fc_stack(3, stack_options(fc_layers=layers[:2]), 0).output_size == 1000
    assert fc_stack(3, stack_options(fc_layers=[]), 0).output_size == 3


def test_memory_is_looked_at_for_large_layers_alone(monkeypatch):
    looks = []
    monkeypatch.setattr("distcore_tabular.layers.free_bytes", lambda: looks.append(1) or 1 << 50)
    for width, seen in ((32, 0), (512, 1)):
        fc_stack(width, stack_options(output_size=width), 1)
        assert len(looks) == seen, width


def test_what_is_only_large_is_made():
    assert fc_stack(3, stack_options(output_size=4096), 2).output_size == 4096
