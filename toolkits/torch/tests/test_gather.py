"""Rows packed and in another order: compiled, by Arrow and by numpy the same bytes, and never rows
that are not there."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_core.contracts import Column
from distcore_torch import gather
from distcore_torch.batch import Layout
from distcore_torch.gather import places_by, runs, take_lists, take_rows
from distcore_torch.packing import pack

prove = settings(max_examples=60, deadline=None)


@pytest.fixture(params=["compiled code", "numpy"], autouse=True)
def by(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(gather, "compiled", None)


@pytest.mark.parametrize("width", [1, 15, 16, 17, 255, 256, 257, 272, 1001])
@pytest.mark.parametrize("many", [0, 1, 40])
def test_rows_of_a_matrix(width, many):
    matrix = np.arange(30 * width, dtype=np.int32).reshape(30, width)
    rows = np.random.default_rng(width).integers(0, 30, many)
    found = take_rows(matrix, rows)
    assert found.dtype == np.int32
    assert found.shape == (many, width)
    assert found.tolist() == [matrix[row].tolist() for row in rows]
    assert not np.shares_memory(found, matrix)


def test_a_matrix_without_words_or_rows():
    assert take_rows(np.empty((5, 0), np.int32), np.array([4, 0])).shape == (2, 0)
    assert take_rows(np.empty((0, 3), np.int32), np.zeros(0, np.int64)).shape == (0, 3)


@prove
@given(
    st.lists(st.lists(st.integers(-9, 9), max_size=6), min_size=1, max_size=60),
    st.lists(st.integers(0, 10_000), max_size=60),
)
def test_rows_of_a_ragged_column(lists, places):
    values = np.array([each for row in lists for each in row], np.int32)
    offsets = np.cumsum([0, *map(len, lists)])
    rows = np.array(places, np.int64) % len(lists)
    found, ends = take_lists(values, offsets, rows)
    assert (found.dtype, ends.dtype) == (np.int32, np.int64)
    pairs = zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    assert [found[a:b].tolist() for a, b in pairs] == [lists[row] for row in rows]
    assert len(found) == ends[-1]


@prove
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=20))
def test_runs(pairs):
    begins, lengths = np.array(pairs, np.int64).reshape(-1, 2).T
    assert runs(begins, lengths).tolist() == [
        begin + i for begin, length in pairs for i in range(length)
    ]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 1000, 20_001, 50_000])
def test_places_in_the_order_of_bits(size):
    bits = np.random.default_rng(size).integers(0, 1 << 32, size, np.uint32)
    bits[size // 2 :] = bits[: size - size // 2]  # many are equal
    bits[size // 3 :] &= 0xFFFF
    places = places_by(bits)
    assert places.dtype == np.int64
    assert np.array_equal(places, np.argsort(bits, kind="stable"))


def compiled():
    return pytest.importorskip("distcore_torch._gather")


@pytest.mark.parametrize("row", [-1, 3, 1 << 62])
def test_compiled_code_refuses_rows_that_are_not_there(row):
    rows, offsets = np.array([0, row]), np.array([0, 1, 2, 3])
    with pytest.raises(ValueError, match="such a matrix"):
        compiled().take_rows(np.empty((2, 4), np.int32), np.zeros((3, 4), np.int32), rows, 4)
    with pytest.raises(ValueError, match="such a column"):
        compiled().list_ends(np.empty(3, np.int64), offsets, rows)
    with pytest.raises(ValueError, match="such a column"):
        compiled().take_lists(np.empty(2, np.int32), np.zeros(3, np.int32), offsets, rows)


@pytest.mark.parametrize("offsets", [[0, 9], [-2, 1], [2, 0], [0, 1]])
def test_compiled_code_refuses_offsets_that_are_not_those_of_the_values(offsets):
    with pytest.raises(ValueError, match="such a column"):
        compiled().take_lists(
            np.empty(2, np.int32), np.zeros(3, np.int32), np.array(offsets), np.array([0])
        )


@pytest.mark.parametrize("offsets", [[], [0, 1 << 62, 5], [-(1 << 63), 2], [0, (1 << 63) - 1]])
def test_compiled_code_refuses_offsets_of_no_column(offsets):
    offsets, rows = np.array(offsets, np.int64), np.array([0, 1, 0])
    with pytest.raises(ValueError, match="such a column"):
        compiled().list_ends(np.empty(4, np.int64), offsets, rows)
    with pytest.raises(ValueError, match="such a column"):
        compiled().take_lists(np.empty(2, np.int32), np.zeros(3, np.int32), offsets, rows)


def test_compiled_code_refuses_room_of_another_size():
    matrix, rows = np.zeros((3, 4), np.int32), np.array([0, 1])
    for out, width in ((np.empty(7, np.int32), 4), (np.empty(8, np.int32), 0)):
        with pytest.raises(ValueError, match="such a matrix"):
            compiled().take_rows(out, matrix, rows, width)
    with pytest.raises(ValueError, match="such a column"):
        compiled().list_ends(np.empty(2, np.int64), np.array([0, 1, 2, 3]), rows)
    with pytest.raises(ValueError, match="a place for each"):
        compiled().places_by(np.empty(2, np.int64), np.zeros(3, np.uint32))


@prove
@given(st.data())
def test_columns_are_packed_as_they_lie(data):
    """Slices, columns in another order than the layout's, more columns than are asked for, a
    column that is wider than a word."""
    rows, skip = data.draw(st.sampled_from([0, 1, 63, 64, 65, 200])), data.draw(st.integers(0, 9))
    count = data.draw(st.integers(1, 20))
    dtypes = data.draw(
        st.lists(st.sampled_from(["float32", "int32"]), min_size=count, max_size=count)
    )
    random = np.random.default_rng(rows + count)
    names = [f"c{place}" for place in range(count)]
    given = {
        name: pa.array(random.integers(0, 1 << 30, rows + skip).astype(np.int32).view(dtype))
        for name, dtype in zip(names, dtypes, strict=True)
    }
    pairs = pa.array(random.integers(0, 99, 2 * (rows + skip)).astype(np.int32))
    given["pair"] = pa.FixedSizeListArray.from_arrays(pairs, 2)
    encoded = pa.record_batch(given).slice(skip)
    layout = Layout.of(
        [
            *(Column(name=name, dtype=dtype) for name, dtype in zip(names, dtypes, strict=True)),
            Column(name="pair", dtype="int32", width=2),
        ][data.draw(st.integers(0, count)) :]
    )
    found = pack(encoded, layout)
    for name, (start, width, _) in layout.slots.items():
        column = encoded.column(name)
        values = (column.flatten() if width == 2 else column).to_numpy(zero_copy_only=False)
        words = found.packed.numpy()[:, start : start + width]
        assert words.tolist() == values.view(np.int32).reshape(-1, width).tolist()


def test_compiled_code_leaves_alone_what_is_not_a_word_wide():
    def done(*columns, places=(0, 1), out=None):
        batch = pa.record_batch(dict(zip("ab", map(pa.array, columns), strict=True)))
        out = np.zeros((2, 2), np.int32) if out is None else out
        places = np.array(places, np.int64)
        return compiled().pack_columns(out, 2, places, *batch.__arrow_c_array__())

    plain = np.array([1, 2], np.int32)
    assert done(plain, plain)
    assert not done(plain, np.array([1, 2], np.int64))
    assert not done(plain, pa.array([1, None], pa.int32()))
    assert not done(plain, pa.array(["a", "b"]).dictionary_encode())
    assert not done(plain, plain, places=(0, 2))
    assert not done(plain, plain, places=(-1, 0))
    assert not done(plain, plain, places=(0,))
    assert not done(plain, plain, out=np.zeros((3, 2), np.int32))
