"""Fully connected layers by oneDNN, and gradients of their weights part by part."""

from array import array
from itertools import pairwise

import pytest
import torch

from distcore_torch import products
from distcore_torch.training.determinism import one_thread
from distcore_torch.training.exact.tree import tree_sum

SHAPES = [(128, 128), (106, 256), (2048, 8), (8, 2050), (301, 77)]
"""(inputs, outputs)"""

vectors = pytest.mark.skipif(not products.has_vectors(), reason="there are no vectors of 512 bits")
kernel = pytest.mark.skipif(not products.has_kernel(), reason="built without, or no such vectors")


@pytest.fixture(autouse=True)
def by_weight_alone(monkeypatch):
    """So that few rows do, and on Intel's processors, where MKL is the faster one, layers at all."""
    monkeypatch.setattr(products, "_there", products.has_vectors)
    monkeypatch.setattr(products._mode, "by_weight_alone", True)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def layer(rows, inputs, outputs, bias=True):
    """x, weight and bias, each with a gradient to come, and that of what they give."""
    given = [numbers(rows, inputs), numbers(outputs, inputs, seed=1), numbers(outputs, seed=2)]
    leaves = [each.requires_grad_() for each in given]
    return [*leaves[:2], leaves[2] if bias else None], numbers(rows, outputs, seed=3)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
@pytest.mark.parametrize("rows", [0, 1, 37, 128, 300])
def test_a_layer_and_its_gradients_are_those_of_float64(rows, inputs, outputs, bias, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        leaves, gradient = layer(rows, inputs, outputs, bias)
        found = products.linear(*leaves)
        found.backward(gradient)
        with torch.no_grad():
            alone = products.linear(*leaves)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found, alone)
    exact = [None if each is None else each.detach().double().requires_grad_() for each in leaves]
    expected = torch.nn.functional.linear(*exact)
    expected.backward(gradient.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    for mine, other in zip(leaves, exact, strict=True):
        if mine is not None:
            torch.testing.assert_close(mine.grad.double(), other.grad, rtol=1e-4, atol=1e-3)


@vectors
def test_a_gradient_is_made_for_what_needs_one():
    leaves, gradient = layer(20, 128, 128)
    leaves[0].requires_grad_(False)
    leaves[2].requires_grad_(False)
    products.linear(*leaves).backward(gradient)
    assert leaves[0].grad is leaves[2].grad is None
    assert leaves[1].grad.count_nonzero()


LEFT_TO_TORCH = {
    "few weights": {"inputs": 127},
    "a narrow layer": {"inputs": 4000, "outputs": 7},
    "float64": {"dtype": torch.float64},
    "rows of rows": {"shape": (5, 4)},
    "a weight whose rows lie apart": {"apart": 3},
}


@pytest.mark.parametrize("case", LEFT_TO_TORCH)
def test_what_would_gain_nothing_is_left_to_torch(case, monkeypatch):
    given = {"inputs": 128, "outputs": 128, "dtype": torch.float32, "shape": (20,), "apart": 0}
    given |= LEFT_TO_TORCH[case]
    monkeypatch.setattr(products, "forward", None)
    x = numbers(*given["shape"], given["inputs"]).to(given["dtype"])
    weight = numbers(given["outputs"], given["inputs"] + given["apart"]).to(given["dtype"])
    weight = weight[:, : given["inputs"]]
    assert torch.equal(products.linear(x, weight), torch.nn.functional.linear(x, weight))


@vectors
def test_mixed_precision_is_left_to_torch(monkeypatch):
    monkeypatch.setattr(products, "forward", None)
    with torch.autocast("cpu", torch.bfloat16):
        assert products.linear(numbers(20, 128), numbers(128, 128)).dtype == torch.bfloat16


@vectors
@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_factor_lies_in_one_piece(threads, built, monkeypatch):
    """Inputs are views of a batch, whose rows lie apart; with such factors oneDNN takes seconds."""
    forward, seen = products.forward, []

    def watched(x, weight, bias):
        seen.append(weight.is_contiguous() or weight.t().is_contiguous())
        return forward(x, weight, bias)

    monkeypatch.setattr(products, "forward", watched)
    if not built:
        monkeypatch.setattr(products, "compiled", None)
    x = numbers(200, 130)[:, :128].requires_grad_()
    weight = numbers(128, 128).requires_grad_()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        products.linear(x, weight).backward(numbers(200, 140)[:, 5:133])
    finally:
        torch.set_num_threads(before)
    assert len(seen) >= 2
    assert all(seen)


# ------------------------------------------------------------------ gradients of weights

ROWS = [1, 2, 17, 127, 128, 129, 256, 300, 1000]


@kernel
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
@pytest.mark.parametrize("rows", ROWS)
def test_compiled_code_and_onednn_have_the_same_bits(rows, inputs, outputs, monkeypatch):
    gradient, x = numbers(rows, outputs), numbers(rows, inputs, seed=1)
    with one_thread():
        found = products.weight_gradient(gradient, x)
        monkeypatch.setattr(products, "compiled", None)
        assert torch.equal(products.weight_gradient(gradient, x), found)


@kernel
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
@pytest.mark.parametrize(
    "sizes",
    [[5], [128, 128], [0, 3, 200, 0], [114] * 3 + [115] * 5, [130] * 16, [0, 0, 0, 1]],
)
def test_parts_are_added_as_the_tree_says(sizes, inputs, outputs):
    ends = torch.tensor(sizes).cumsum(0).tolist()
    gradient, x = numbers(ends[-1], outputs), numbers(ends[-1], inputs, seed=1)
    found = torch.full((outputs, inputs), torch.nan)
    with one_thread():
        products.lay_weight_gradients(found, gradient, x, ends)
        parts = [
            products.weight_gradient(gradient[start:stop], x[start:stop])
            for start, stop in pairwise([0, *ends])
        ]
    assert torch.equal(found, tree_sum(parts) + 0.0)


@kernel
def test_a_zero_has_no_sign():
    gradient, x = torch.full((4, 64), -1.0), torch.zeros(4, 64)
    found = torch.empty(64, 64)
    products.lay_weight_gradients(found, gradient, x, [2, 4])
    assert not found.signbit().any()
    with one_thread():
        assert not products.weight_gradient(gradient, x).signbit().any()


@kernel
@pytest.mark.parametrize(
    ("ends", "rows", "out"),
    [
        ([2, 3], 4, 6),
        ([5], 4, 6),
        ([3, 2, 4, 4], 4, 6),
        ([1, 2, 4], 4, 6),
        ([], 4, 6),
        ([-1, 4], 4, 6),
        ([4], 4, 5),
        ([0], 0, 0),
        ([3], 3, 6),
    ],
)
def test_what_is_no_gradient_is_refused(ends, rows, out):
    gradient, x = numbers(4, 2).numpy(), numbers(4, 3).numpy()
    with pytest.raises(ValueError, match="not the factors of such a gradient"):
        products.compiled.weight_gradient(
            bytearray(4 * out), gradient, x, array("q", ends), rows, 1
        )


@kernel
@pytest.mark.skipif(not products.shares_threads(), reason="torch's threads are not to be had")
@pytest.mark.parametrize("threads", [2, 3, 7, 64, 500])
@pytest.mark.parametrize(("inputs", "outputs"), [*SHAPES, (70, 3), (2, 500)])
@pytest.mark.parametrize("sizes", [[300], [128, 128], [0, 3, 200, 0], [130] * 16])
def test_threads_change_no_bit_of_a_gradient(sizes, inputs, outputs, threads):
    ends = torch.tensor(sizes).cumsum(0).tolist()
    gradient, x = numbers(ends[-1], outputs), numbers(ends[-1], inputs, seed=1)

    def found(threads):
        out = torch.full((outputs, inputs), torch.nan)
        given = (gradient.numpy(), x.numpy(), array("q", ends), ends[-1])
        products.compiled.weight_gradient(out.numpy(), *given, threads)
        return out

    assert torch.equal(found(threads), found(1))


@vectors
@pytest.mark.parametrize(
    ("rows", "width", "threads", "goes"),
    [
        (255, 128, 1, False),
        (256, 128, 1, True),
        (511, 128, 2, False),
        (512, 128, 2, True),
        (15, 1024, 1, False),
        (16, 1024, 1, True),
    ],
)
def test_a_layer_learns_by_onednn_if_there_is_work_enough_for_each_thread(
    rows, width, threads, goes, monkeypatch
):
    seen, forward = [], products.forward
    monkeypatch.setattr(products, "forward", lambda *given: seen.append(1) or forward(*given))
    monkeypatch.setattr(products._mode, "by_weight_alone", False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    products.linear(numbers(rows, width), numbers(width, width))
    assert bool(seen) is goes
    seen.clear()
    with torch.no_grad():  # the bits of predictions depend on no number of threads
        products.linear(numbers(rows, width), numbers(width, width))
    assert bool(seen) is (rows >= products.FEWEST_ROWS)
