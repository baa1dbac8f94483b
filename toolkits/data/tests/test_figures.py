"""Sizes, times and numbers as people read them."""

import pytest

from distcore_data.figures import duration, human_bytes, milliseconds, number, parameter, several


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (2.5e12, "2.5 TB")]
)
def test_human_bytes(count, text):
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "exact", "rough"),
    [
        (0, "0.0 s", "0.0 s"),
        (0.0042, "0.004 s", "0.004 s"),
        (9.94, "9.9 s", "9.9 s"),
        (9.96, "10.0 s", "10 s"),
        (59.94, "59.9 s", "60 s"),
        (59.96, "1 min 0 s", "60 s"),
        (99.6, "1 min 40 s", "2 min"),
        (3599.6, "1 h 0 min", "60 min"),
        (11250, "3 h 7 min", "3.1 h"),
    ],
)
def test_duration(seconds, exact, rough):
    assert duration(seconds) == exact
    assert duration(seconds, rough=True) == rough


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *[(0, "0 ms"), (1.25e-5, "0.0125 ms"), (0.0994, "99.4 ms"), (0.09996, "100 ms")],
        *[(0.9997, "1,000 ms"), (1.2345, "1,234 ms")],
    ],
)
def test_milliseconds(seconds, text):
    assert milliseconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "four", "six"),
    [
        (0.80254, "0.8025", "0.80254"),
        (1.5e-5, "1.5e-05", "1.5e-05"),
        (9999.4, "9999", "9999.4"),
        (9999.6, "9999.6", "9999.6"),
        (-12345.678, "-12345.7", "-12345.7"),
        (1234567.8, "1.23457e+06", "1.23457e+06"),
        (float("nan"), "nan", "nan"),
    ],
)
def test_number(value, four, six):
    assert number(value) == four
    assert number(value, 6) == six


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 trials"), (1, "1 trial"), (1200, "1,200 trials")]
)
def test_several(count, text):
    assert several(count, "trial") == text


def test_parameter():
    assert [*map(parameter, (0.00123456, 12, "relu", [8, 9], None))] == [
        *("0.001235", "12", "relu", "[8,9]", "null")
    ]
