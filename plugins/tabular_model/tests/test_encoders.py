"""Encoders of numbers, binaries and categories."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from distcore_core.errors import UserError
from distcore_tabular import encoders

STACK = {
    "output_size": 8,
    "use_bias": True,
    "weights_initializer": "xavier_uniform",
    "bias_initializer": "zeros",
    "norm": None,
    "norm_params": None,
    "activation": "relu",
    "dropout": 0.0,
    "fc_layers": None,
    "num_layers": 1,
}
EMBED = {
    "embedding_size": 5,
    "embedding_initializer": None,
    "embeddings_trainable": True,
    "dropout": 0.0,
}


def options(base, **changes):
    return SimpleNamespace(**{**base, **changes})


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_passthrough_gives_a_column_of_floats(dtype):
    value = torch.arange(4).to(dtype)
    out = encoders.Passthrough()(value)
    assert out.dtype == torch.float32
    assert torch.equal(out, torch.arange(4.0)[:, None])


def test_passthrough_takes_a_strided_view_of_a_packed_matrix():
    packed = torch.arange(12, dtype=torch.float32).view(4, 3)
    assert torch.equal(encoders.Passthrough()(packed[:, 1]), packed[:, 1:2])


def test_dense_is_a_stack_over_the_value():
    encoder = encoders.Dense(options(STACK))
    assert encoder(torch.randn(4)).shape == (4, 8)
    assert encoder.output_size == 8
    encoder = encoders.Dense(options(STACK, fc_layers=[{"output_size": 3}, {"output_size": 2}]))
    assert encoder(torch.randn(4)).shape == (4, 2)
    assert encoder.output_size == 2


def places(edges, values):
    """What the layer of ple is given, [B, bins + 1]."""
    encoder = encoders.Ple(np.array(edges, np.float32), options(STACK))
    seen = []
    encoder.fc_stack.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    assert encoder(torch.tensor(values)).shape == (len(values), 8)
    return seen[0].tolist()


def test_ple_is_the_place_in_each_bin_and_the_value():
    assert places([0, 1, 3], [-2.0, 0.0, 0.5, 2.0, 3.0, 4.0]) == [
        [0.0, 0.0, -2.0],
        [0.0, 0.0, 0.0],
        [0.5, 0.0, 0.5],
        [1.0, 0.5, 2.0],
        [1.0, 1.0, 3.0],
        [1.0, 1.0, 4.0],
    ]


@pytest.mark.parametrize("only", [0.0, -3e8])
def test_ple_of_a_constant_column_has_one_bin(only):
    assert places([only], [only, only - 64, only + 64]) == [
        [0.0, only],
        [0.0, only - 64],
        [1.0, only + 64],
    ]


@given(
    st.lists(st.floats(-(2.0**120), 2.0**120, width=32), min_size=1, max_size=20, unique=True),
    st.lists(st.floats(-(2.0**120), 2.0**120, width=32), min_size=1, max_size=20),
)
def test_places_are_shares_that_grow_with_the_value(edges, values):
    found = torch.tensor(places(sorted(edges), sorted(values)))[:, :-1]
    assert ((found >= 0) & (found <= 1)).all()
    assert (found.diff(dim=0) >= 0).all()


def test_ple_has_layers_as_dense_and_its_edges_are_no_weights():
    edges = np.array([0.0, 1.0, 2.0], np.float32)
    encoder = encoders.Ple(
        edges, options(STACK, fc_layers=[{"output_size": 4}, {"output_size": 2}])
    )
    assert encoder.output_size == 2
    assert {name: tuple(each.shape) for name, each in encoder.state_dict().items()} == {
        "fc_stack.layers.0.linear.weight": (4, 3),
        "fc_stack.layers.0.linear.bias": (4,),
        "fc_stack.layers.1.linear.weight": (2, 4),
        "fc_stack.layers.1.linear.bias": (2,),
    }
    assert list(encoder.buffers()) == []
    moved = encoder.to("meta")
    assert (moved.low.device.type, moved.width.device.type) == ("meta", "meta")


def test_category_embedding_looks_up_rows_and_is_never_wider_than_its_vocabulary():
    encoder = encoders.category_embed(3, options(EMBED))
    assert encoder.output_size == 3
    codes = torch.tensor([2, 0, 2], dtype=torch.int32)
    assert torch.equal(encoder(codes), encoder.weight[[2, 0, 2]])
    assert encoder.weight.abs().max() <= 1
    assert not encoders.category_embed(
        3, options(EMBED, embeddings_trainable=False)
    ).weight.requires_grad


def test_sparse_is_one_hot_and_a_learned_table_when_trainable():
    codes = torch.tensor([2, 0], dtype=torch.int32)
    expected = torch.tensor([[0.0, 0, 1], [1, 0, 0]])
    fixed = encoders.category_sparse(3, options(EMBED, embeddings_trainable=False))
    learned = encoders.category_sparse(3, options(EMBED))
    assert torch.equal(fixed(codes), expected)
    assert torch.equal(learned(codes), expected)
    assert list(fixed.parameters()) == []
    assert learned.weight.requires_grad
    assert torch.equal(encoders.OneHot(3)(codes), expected)


def test_dropout_drops_only_while_training():
    encoder = encoders.category_embed(100, options(EMBED, dropout=0.5))
    codes = torch.arange(100, dtype=torch.int32)
    assert (encoder.train()(codes) == 0).any()
    assert torch.equal(encoder.eval()(codes), encoder.weight)


@pytest.mark.parametrize("encoder", [encoders.Passthrough(), encoders.OneHot(3)])
def test_no_rows_are_taken(encoder):
    assert encoder(torch.empty(0, dtype=torch.int32)).shape == (0, encoder.output_size)


@pytest.mark.parametrize(("values", "size"), [(10**6, 10**6), (10**12, 64)])
def test_vectors_beyond_the_memory_are_refused_before_torch_is_asked(values, size):
    with pytest.raises(UserError, match=rf"the vectors of {values} values .* {size} numbers"):
        encoders.CategoryEmbed(values, size)
