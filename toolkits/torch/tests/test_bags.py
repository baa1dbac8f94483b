"""Sums and means of rows of a table: torch's own numbers, and gradients that are added in the
order of the values."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from distcore_torch import embedding_bag
from distcore_torch.training.exact import tables

ROWS, WIDTH = 40, 5


def drawn(seed=0, count=2000):
    """A table, values that name few of its rows again and again, and rows of which some have
    none."""
    torch.manual_seed(seed)
    table = torch.randn(ROWS, WIDTH, requires_grad=True)
    values = (torch.rand(count) ** 3 * (ROWS - 1)).long()
    cuts = torch.randint(0, count + 1, (300,)).sort().values
    offsets = torch.cat([torch.tensor([0, 0]), cuts, torch.tensor([count])])
    return table, values, offsets


def gradient_of(table, found):
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    return torch.autograd.grad((found * weights).sum(), table)[0], weights


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_numbers_are_those_of_torch(mode, built, monkeypatch):
    if not built:
        monkeypatch.setattr(tables, "sums", None)
    table, values, offsets = drawn()
    ours = embedding_bag(table, values, offsets, mode)
    theirs = F.embedding_bag(values, table, offsets, mode=mode, include_last_offset=True)
    assert torch.equal(ours, theirs)
    assert ours[0].tolist() == [0.0] * WIDTH
    torch.testing.assert_close(gradient_of(table, ours)[0], gradient_of(table, theirs)[0])


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradients_are_added_in_the_order_of_the_values(mode, built, monkeypatch):
    """torch's own are those of a sort that is not stable."""
    if not built:
        monkeypatch.setattr(tables, "sums", None)
    table, values, offsets = drawn()
    found, weights = gradient_of(table, embedding_bag(table, values, offsets, mode))
    expected = torch.zeros(ROWS, WIDTH)
    for row, (start, stop) in enumerate(itertools.pairwise(offsets)):
        for value in values[start:stop]:
            expected[value] += weights[row] / (len(values[start:stop]) if mode == "mean" else 1)
    assert torch.equal(found, expected)


def test_a_batch_without_values_gives_zeros():
    table = torch.randn(ROWS, WIDTH, requires_grad=True)
    empty = torch.zeros(0, dtype=torch.int64)
    found = embedding_bag(table, empty, torch.zeros(4, dtype=torch.int64), "mean")
    assert torch.equal(found, torch.zeros(3, WIDTH))
    assert torch.equal(gradient_of(table, found)[0], torch.zeros(ROWS, WIDTH))


def test_another_precision_is_taken_too():
    table, values, offsets = drawn(count=50)
    double = table.detach().double().requires_grad_()
    gradient = gradient_of(double, embedding_bag(double, values, offsets))[0]
    assert gradient.dtype == torch.float64
    assert gradient.abs().sum() > 0


def test_a_compiler_sees_torchs_own():
    table, values, offsets = drawn(count=50)
    compiled = torch.compile(embedding_bag, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(table, values, offsets), embedding_bag(table, values, offsets))
