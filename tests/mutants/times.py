"""Features that read times, with a fault each: a day, counted from the first one there is."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
from tests.mutants.features import Sound
from tests.mutants.harness import Mutants

from distcore_core.errors import DataError
from distcore_core.hooks import hookimpl
from distcore_testing import FeatureSuite

DAY = 86_400
EPOCH = datetime.date(1970, 1, 1).toordinal()


def values(self):
    days = [None if row % 9 == 0 else f"{1990 + row % 30}-0{row % 9 + 1}-11" for row in range(300)]
    return pa.array(days).dictionary_encode()


DISTCORE_API = (1, 0)
MUTANTS = Mutants("features", FeatureSuite, {"values": values})


@MUTANTS.sound
class Days(Sound):
    """Days since the first one of the column, in thousands; a missing one is zero."""

    raw = "time"

    def partial(self, values):
        known = [each for each in self.days(values) if each is not None]
        return min(known) if known else None

    def merge(self, left, right):
        known = [each for each in (left, right) if each is not None]
        return min(known) if known else None

    def finish(self, state):
        if state is None:
            raise DataError(f"Column {self.name!r} has no value in any row.")
        return {"first": state}

    def encode(self, values, metadata):
        first = metadata["first"]
        found = [0 if each is None else each - first for each in self.days(values)]
        return pa.array(np.array(found, np.float32) / 1000)

    def days(self, values):
        """Since 1970-01-01, None if it is missing."""
        if pa.types.is_timestamp(values.type):
            seconds = values.cast(pa.int64()).to_pylist()
            return [None if each is None else self.day(each) for each in seconds]
        return [None if each is None else self.read(each) for each in values.to_pylist()]

    def day(self, second):
        return second // DAY

    def read(self, text):
        try:
            return datetime.date.fromisoformat(text[:10]).toordinal() - EPOCH
        except ValueError as error:
            raise DataError(f"Column {self.name!r}: {text!r} is no day.") from error


@MUTANTS.fault("test_times_are_what_their_texts_are")
class Truncating(Days):
    """A time before 1970 is taken for the day behind it."""

    def day(self, second):
        return int(second / DAY)


@MUTANTS.fault("test_times_are_what_their_texts_are")
class Counting(Days):
    """Takes what lies under a missing time for one."""

    def days(self, values):
        if not pa.types.is_timestamp(values.type):
            return super().days(values)
        plain = np.frombuffer(values.buffers()[1], np.int64)[values.offset :][: len(values)]
        return [self.day(int(each)) for each in plain]


@MUTANTS.fault("test_times_are_what_their_texts_are")
class Unsliced(Days):
    """Reads a slice of a column from the column's beginning."""

    def days(self, values):
        if not pa.types.is_timestamp(values.type) or values.null_count == len(values):
            return super().days(values)
        plain = np.frombuffer(values.buffers()[1], np.int64)[: len(values)]
        known = values.is_valid().to_pylist()
        return [
            self.day(int(each)) if there else None for each, there in zip(plain, known, strict=True)
        ]


@hookimpl
def distcore_make_feature(name, column):
    made = MUTANTS.named(name)
    return made and made(column)
