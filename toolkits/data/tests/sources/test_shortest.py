"""Short floats and decimals are the doubles that their texts read as, with compiled code and
without."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distcore_data.arrow import from_numpy
from distcore_data.sources import shortest
from distcore_data.sources.shortest import doubles, float_texts

BLOCK = 1 << 22
"""Floats that are compared at once."""


def read_as_text(values: pa.Array) -> pa.Array:
    """What `doubles` promises; NaN as null."""
    texts = values.cast(pa.utf8())
    if pa.types.is_float16(values.type):
        texts = pa.array(
            [None if each is None else str(np.float16(each)) for each in values.to_pylist()]
        )
    return texts.cast(pa.float64())


def assert_same(found: pa.Array, expected: pa.Array) -> None:
    """To the bit, but that NaN and null are one."""
    assert found.type == pa.float64()
    one, other = (each.to_numpy(zero_copy_only=False) for each in (found, expected))
    missing = np.isnan(one)
    assert (missing == np.isnan(other)).all()
    assert (one.view(np.int64)[~missing] == other.view(np.int64)[~missing]).all()


@pytest.fixture(params=[True, False], ids=["compiled", "not compiled"])
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(shortest, "compiled", None)


@pytest.mark.parametrize("start", [0, 3, 8])
def test_float32_of_any_bits(start: int, code: None) -> None:
    """Tiny, huge and infinite ones, zeros of both signs, NaN, and nulls among them."""
    dice = np.random.default_rng(start)
    bits = dice.integers(0, 1 << 32, 20_000, dtype=np.uint32).view(np.float32)
    usual = dice.normal(size=20_000).round(dice.integers(0, 9)).astype(np.float32)
    odd = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 0.1, -0.3, 16777216, 9.9999994e-14], np.float32
    )
    plain = np.concatenate([bits, usual, odd])
    values = pa.array(plain, mask=dice.random(len(plain)) < 0.1)
    assert_same(doubles(values.slice(start)), read_as_text(values.slice(start)))
    assert_same(doubles(from_numpy(plain)[start:]), read_as_text(from_numpy(plain)[start:]))


def test_float32_at_powers_of_ten_and_between_two_decimals(code: None) -> None:
    """Where the number of digits changes, and where a decimal lies in the middle of two floats."""
    tens = np.float32(10.0) ** np.arange(-45, 39, dtype=np.float32)
    halves = np.arange(1 << 16, dtype=np.float32) + np.float32(0.5)
    beside = [np.nextafter(tens, np.float32(0)), tens, np.nextafter(tens, np.float32(np.inf))]
    large = np.float32(2.0) ** np.arange(24, 100, dtype=np.float32)
    middle = np.array([1.5474251e26], np.float32)  # so near to it that a double is in it
    plain = np.concatenate([*beside, halves, large, large + 2 * np.spacing(large), middle])
    assert_same(doubles(from_numpy(plain)), read_as_text(from_numpy(plain)))
    assert_same(doubles(from_numpy(-plain)), read_as_text(from_numpy(-plain)))


def test_every_float16() -> None:
    every = pa.array(np.arange(1 << 16, dtype=np.uint16).view(np.float16))
    assert_same(doubles(every), read_as_text(every))
    some = pa.array([None, *every[1000:1010].to_pylist(), None], pa.float16())
    assert_same(doubles(some[1:]), read_as_text(some[1:]))
    assert doubles(some).null_count == 2


@given(
    st.lists(
        st.none() | st.integers(-(10**30), 10**30) | st.integers(-(10**15), 10**15), max_size=9
    ),
    st.integers(-5, 30),
    st.integers(0, 3),
)
@example([2**53 + 3], 3, 0)  # no double
@example([-(2**53) - 3], 3, 0)
@example([2**64 + 5], 2, 0)  # of two words
@example([-(2**64) + 5], 2, 0)
@example([5], 23, 0)  # nor is 10**23
@example([1], -23, 0)
def test_decimals(numbers: list[int | None], scale: int, start: int) -> None:
    texts = [None if each is None else Decimal(each).scaleb(-scale) for each in numbers]
    values = pa.array(texts, pa.decimal128(38, scale))[start:]
    found = doubles(values)
    assert found.null_count == values.null_count
    assert_same(
        found,
        pa.array(
            [None if each is None else float(each) for each in values.to_pylist()], pa.float64()
        ),
    )


def test_nothing() -> None:
    for kind in (pa.float16(), pa.float32(), pa.decimal128(9, 2)):
        assert doubles(pa.array([], kind)).equals(pa.array([], pa.float64()))
        assert doubles(pa.nulls(3, kind)).equals(pa.nulls(3, pa.float64()))


def test_room_is_looked_at() -> None:
    if shortest.compiled is None:
        pytest.skip("distcore was installed without a C compiler")
    values, target = np.zeros(4, np.float32), np.zeros(4)
    for offset, count in ((0, 5), (4, 1), (-1, 1), (0, -1), (5, 0)):
        with pytest.raises(ValueError, match="not so many"):
            shortest.compiled.doubles(values, offset, count, target)
    with pytest.raises(ValueError, match="no room"):
        shortest.compiled.doubles(values, 0, 4, target[:3])


@pytest.mark.slow
def test_every_float32_that_compiled_code_finds() -> None:
    """All positive ones from 1e-14 to 1e26, in a few minutes: signs change nothing."""
    first, last = (int(np.float32(each).view(np.uint32)) for each in (1e-14, 1e26))
    for start in range(first, last, BLOCK):
        bits = np.arange(start, min(start + BLOCK, last), dtype=np.uint32)
        values = from_numpy(bits.view(np.float32))
        assert_same(doubles(values), read_as_text(values))


def assert_python_spells(values: pa.Array) -> None:
    plain = values.to_numpy(zero_copy_only=False)
    missing = np.isnan(plain) | np.asarray(values.is_null())
    texts = plain.astype(str).tolist()
    wanted = [None if gone else text for text, gone in zip(texts, missing, strict=True)]
    assert float_texts(values).to_pylist() == wanted


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_floats_as_texts_are_spelled_as_python_does(kind: type) -> None:
    """Where exponents begin, whole numbers, and any bits; by pieces, with nulls and without."""
    dice = np.random.default_rng(7)
    powers = np.array([f"{sign}1e{power}" for sign in ("", "-") for power in range(-30, 31)])
    usual = dice.standard_normal(3000) * 10.0 ** dice.integers(-8, 20, 3000)
    words = {2: np.uint16, 4: np.uint32, 8: np.uint64}[np.dtype(kind).itemsize]
    bits = dice.integers(0, np.iinfo(words).max, 3000, dtype=words).view(kind)
    with np.errstate(over="ignore"):
        few = [powers.astype(kind), np.array([0.0, -0.0, np.nan, np.inf, -np.inf], kind)]
        found = [each for one in few for each in (one, np.nextafter(one, kind(9)))]
        found += [usual.astype(kind), usual.round().astype(kind), bits]
    plain = np.concatenate(found)
    values = pa.array(plain, mask=dice.random(len(plain)) < 0.1)
    for start in (0, 3):
        assert_python_spells(values[start:])
        assert_python_spells(pa.array(plain)[start:])
    assert_python_spells(pa.array([], values.type))
