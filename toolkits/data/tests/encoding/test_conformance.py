"""The built-in splitters hold what every splitter must hold."""

from distcore_testing import SplitterSuite
from distcore_testing.splitters import ROWS


class TestRandom(SplitterSuite):
    name, column = "random", None


class TestHash(SplitterSuite):
    """Ludwig's own assignment, of the value alone."""

    name, seeded = "hash", False


class TestFixed(SplitterSuite):
    """The column says it."""

    name, seeded, shares = "fixed", False, False

    def values(self):
        return [["0", "test", "1", "train"][row * row % 7 % 4] for row in range(ROWS)]


class TestStratify(SplitterSuite):
    """Shares of each class, so of all its rows."""

    name, row_wise = "stratify", False


class TestDatetime(SplitterSuite):
    """By the time alone."""

    name, row_wise, seeded = "datetime", False, False

    def values(self):
        return [
            f"2024-{1 + row % 12:02d}-{1 + row * 7 % 28:02d} 0{row % 10}:00" for row in range(ROWS)
        ]
