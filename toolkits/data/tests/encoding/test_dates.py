"""Dates by the places of their digits, and their parts, with compiled code and without."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_data.encoding import dates
from distcore_data.encoding.calendar import DAY_SECONDS, FIRST_DAY, LAST_DAY
from distcore_data.encoding.dates import parts_of, seconds_of

EPOCH = datetime.datetime(1970, 1, 1)
LETTERS = st.text("0123456789-/:.,tTzZ+ é", max_size=40)


def without_compiled(call, *given):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dates, "compiled", None)
        return call(*given)


@pytest.fixture(params=[True, False], ids=["compiled", "not compiled"])
def code(request, monkeypatch):
    if request.param:
        assert dates.compiled is not None, "there is a C compiler here"
    else:
        monkeypatch.setattr(dates, "compiled", None)


def python_parts(when):
    clock = [when.hour, when.minute, when.second]
    of_day = clock[0] * 3600 + clock[1] * 60 + clock[2]
    return [*when.timetuple()[:3], when.weekday(), when.timetuple().tm_yday, *clock, of_day]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.datetimes().map(lambda each: each.replace(microsecond=0)), max_size=9))
def test_seconds_and_parts_are_pythons(times):
    texts = pa.array([each.isoformat("T") for each in times], pa.utf8())
    for seconds, read in (seconds_of(texts), without_compiled(seconds_of, texts)):
        assert read.all()
        assert seconds.tolist() == [int((each - EPOCH).total_seconds()) for each in times]
        for parts in (parts_of(seconds), without_compiled(parts_of, seconds)):
            assert parts.dtype == np.int32
            assert parts.tolist() == [python_parts(each) for each in times]


def test_the_parts_of_every_day_there_is():
    seconds = np.arange(FIRST_DAY, LAST_DAY + 1) * DAY_SECONDS
    seconds[1::2] += DAY_SECONDS - 1
    assert np.array_equal(parts_of(seconds), without_compiled(parts_of, seconds))


@settings(max_examples=400, deadline=None)
@given(st.lists(st.none() | LETTERS, max_size=9), st.integers(0, 3))
def test_any_letters_mean_the_same_to_both(texts, start):
    values = pa.array(texts, pa.utf8())[start:]
    seconds, read = seconds_of(values)
    expected, as_read = without_compiled(seconds_of, values)
    assert (read == as_read).all()
    assert (seconds == expected).all()
    assert not seconds[~read].any()


def mistyped():
    """Every usual form with every letter at every place."""
    for text in ("2024-02-29", "1999/12/31T23:59:59", "2000-01-01 00:00:00.25+05:30"):
        for place in range(len(text)):
            for letter in "0129-/:. tTzZ+x\0":
                yield text[:place] + letter + text[place + 1 :]


def test_one_wrong_letter_means_the_same_to_both():
    values = pa.array([*mistyped()])
    seconds, read = seconds_of(values)
    expected, as_read = without_compiled(seconds_of, values)
    assert (read == as_read).all()
    assert (seconds == expected).all()
    assert 0.1 < read.mean() < 0.9


@pytest.mark.parametrize("day", [FIRST_DAY - 1, LAST_DAY + 1, -(1 << 63), 1 << 62])
def test_years_that_no_date_has_are_refused(code, day):
    seconds = np.array([0, day if abs(day) > 1 << 40 else day * DAY_SECONDS])
    with pytest.raises(ValueError, match="years 1 to 9999"):
        parts_of(seconds)


def test_no_dates(code):
    assert [each.tolist() for each in seconds_of(pa.array([], pa.utf8()))] == [[], []]
    assert [each.tolist() for each in seconds_of(pa.array([None, ""], pa.utf8()))] == [
        [0, 0],
        [False, False],
    ]
    assert parts_of(np.zeros(0, np.int64)).shape == (0, 9)


def test_offsets_that_lie_elsewhere_are_not_followed():
    compiled = dates.compiled
    for ends, first, count in (
        *(([0, 11], 0, 1), ([5, 2], 0, 1), ([-4, 10], 0, 1)),
        *(([0, 10], 0, 2), ([0, 10], 1, 1), ([0, 10], -1, 1), ([0, 10], 0, -1)),
    ):
        offsets = np.array(ends, np.int32)
        with pytest.raises(ValueError, match="offsets"):
            compiled.seconds(offsets, b"2024-01-31", first, count, bytearray(64), bytearray(8))
    for seconds, found in ((bytearray(7), bytearray(1)), (bytearray(8), bytearray(0))):
        offsets = np.array([0, 10], np.int32)
        with pytest.raises(ValueError, match="too short"):
            compiled.seconds(offsets, b"2024-01-31", 0, 1, seconds, found)
    with pytest.raises(ValueError, match="no room"):
        compiled.parts(bytes(16), bytearray(71))
