"""Sums of tables that were looked up in: compiled, by torch, and as the tree says."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from distcore_torch.training.exact import tables
from distcore_torch.training.exact.tree import tree_sum

needs_compiler = pytest.mark.skipif(tables.sums is None, reason="built without a C compiler")

SHAPES = st.tuples(
    st.integers(1, 40), st.integers(0, 90), st.sampled_from([1, 3, 16]), st.sampled_from([1, 2, 8])
)


def drawn(shape, seed):
    """A table's lookups: few distinct rows, numbers of all sizes, parts without any."""
    rows, lookups, width, parts = shape
    make = torch.Generator().manual_seed(seed)
    index = (torch.rand(lookups, generator=make) ** 2 * rows).long()
    values = torch.randn(lookups, width, generator=make)
    values *= 10.0 ** torch.randint(-6, 7, (lookups, 1), generator=make)
    cuts = torch.randint(0, lookups + 1, (parts - 1,), generator=make).sort().values
    return index, values, [*cuts.tolist(), lookups], torch.full((rows, width), torch.nan)


BOTH = pytest.mark.parametrize("add_rows", [tables.add_rows, tables.add_rows_by_torch])


@BOTH
@given(SHAPES, st.integers(0, 1000))
def test_the_sum_is_the_trees(add_rows, shape, seed):
    index, values, ends, out = drawn(shape, seed)
    leaves, start = [], 0
    for end in ends:
        leaf = torch.zeros(out.shape)
        for row, value in zip(index[start:end], values[start:end], strict=True):
            leaf[row] += value
        leaves.append(leaf)
        start = end
    add_rows(out, index, values, ends)
    assert out.numpy().tobytes() == tree_sum(leaves).numpy().tobytes()


@BOTH
def test_a_value_of_several_lookups_is_each_ones(add_rows):
    index, values, offsets = [2, 0, 1, 1, 2], [[1, 10], [2, 20], [4, 40]], [0, 2, 2, 5]
    given = torch.tensor(index), torch.tensor(values, dtype=torch.float32)
    out = torch.full((4, 2), torch.nan)
    add_rows(out, *given, [2, 5], torch.tensor(offsets))
    assert out.tolist() == [[1, 10], [8, 80], [5, 50], [0, 0]]


def test_another_dtype_goes_by_torch():
    out = torch.empty(3, 2, dtype=torch.float64)
    tables.add_rows(out, torch.tensor([2, 0, 2]), torch.ones(3, 2, dtype=torch.float64), [1, 3])
    assert out.tolist() == [[1, 1], [0, 0], [2, 2]]


@needs_compiler
@pytest.mark.parametrize(
    ("index", "ends"), [([0, 3], [1, 2]), ([0, -1], [1, 2]), ([0, 1], [2, 1]), ([0, 1], [1, 3])]
)
def test_what_are_no_lookups_of_the_table_is_refused(index, ends):
    out = torch.zeros(3, 2)
    with pytest.raises(ValueError, match="not those of such a table"):
        tables.add_rows(out, torch.tensor(index), torch.ones(2, 2), ends)
    assert not out.any()
