"""Data formats with a fault each: a line of JSON for each row, which names its columns."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from tests.mutants.harness import Mutants

from distcore_core.contracts import SourceBase
from distcore_core.errors import DataError
from distcore_core.hooks import hookimpl
from distcore_data import TableFormat
from distcore_testing import SourceSuite


def write(self, folder, table):
    path = folder / "data.lines"
    path.write_text(
        "".join(json.dumps(row) + "\n" for row in [table.column_names, *table.to_pylist()])
    )
    return path


DISTCORE_API = (1, 0)
MUTANTS = Mutants("sources", SourceSuite, {"write": write, "damaged": False})


class Wrapped(SourceBase):
    """A source around another."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def rows(self):
        return self.inner.rows()

    def close(self):
        self.inner.close()


@MUTANTS.sound
class Lines(TableFormat):
    """A line of JSON for each row."""

    def table(self, path, shown):
        try:
            names, *found = [json.loads(line) for line in path.read_text().splitlines()]
            columns = {name: [row[name] for row in found] for name in names}
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{shown}: no lines of JSON: {error!r}.") from error
        return pa.table(columns)

    def wrapped(self, source):
        return source

    def open(self, given, raw):
        return self.wrapped(super().open(given, raw))


@MUTANTS.fault("test_every_row_comes_once_and_in_order_in_any_partitions", quick=True)
class Short(Lines):
    """Leaves out the last line."""

    def table(self, path, shown):
        found = super().table(path, shown)
        return found.slice(0, max(0, found.num_rows - 1))


@MUTANTS.fault("test_every_row_comes_once_and_in_order_in_any_partitions")
class Once(Lines):
    """Gives its partitions once."""

    def wrapped(self, source):
        class Given(Wrapped):
            def partitions(self, target_bytes):
                found, self.given = getattr(self, "given", None), True
                return [] if found else self.inner.partitions(target_bytes)

        return Given(source)


@MUTANTS.fault("test_columns_come_as_they_were_asked_for")
class Sorted(Lines):
    """Gives columns in the order of the file."""

    def open(self, given, raw):
        return super().open(given, dict(sorted(raw.items())))


@MUTANTS.fault("test_it_knows_its_rows_or_says_that_it_does_not")
class Miscounting(Lines):
    """Counts the line with the names."""

    def wrapped(self, source):
        class Counted(Wrapped):
            def rows(self):
                return sum(each.read().num_rows for each in self.inner.partitions(1 << 20)) + 1

        return Counted(source)


@MUTANTS.fault("test_spellings_of_missing_values_count")
class Deaf(Lines):
    """Hears nothing of what stands for a missing value."""

    def open(self, given, raw):
        options = given.options.model_copy(update={"null_values": ()})
        return super().open(replace(given, options=options), raw)


@MUTANTS.fault("test_a_sample_has_the_first_rows_and_every_column")
class Generous(Lines):
    """A sample is the whole file."""

    def sample(self, given, rows):
        return super().sample(given, 1 << 40)


@MUTANTS.fault("test_a_digest_is_of_the_content_alone")
class Stamped(Lines):
    """A digest of the path."""

    def wrapped(self, source):
        class Named(Wrapped):
            def digest(self):
                return str(self.inner.files[0].path)

        return Named(source)


@MUTANTS.fault("test_a_digest_is_of_the_content_alone")
class Sized(Lines):
    """A digest of the number of rows."""

    def wrapped(self, source):
        class Counted(Wrapped):
            def digest(self):
                return str(sum(each.read().num_rows for each in self.inner.partitions(1 << 20)))

        return Counted(source)


@MUTANTS.fault("test_what_changes_while_it_is_open_is_told")
class Trusting(Lines):
    """Never looks whether the file is as it was."""

    def wrapped(self, source):
        class Calm(Wrapped):
            def check_unchanged(self, content=True):
                """It is."""

        return Calm(source)


@MUTANTS.fault("test_nothing_is_left_once_it_is_closed")
class Littering(Lines):
    """Keeps the file open."""

    kept: list = []  # noqa: RUF012

    def table(self, path, shown):
        self.kept.append(open(path))  # noqa: SIM115 - the fault
        return super().table(path, shown)


@MUTANTS.fault("test_a_column_that_is_not_there_is_named")
class Brittle(Lines):
    """A column that is not there ends in a KeyError."""

    def open(self, given, raw):
        found = self.table(given.local, given.shown)
        return super().open(
            given,
            {
                found.column_names[found.column_names.index(each)]: kind
                for each, kind in raw.items()
            },
        )


class LockedPart:
    """A partition that one thread reads at a time."""

    def __init__(self, inner):
        self.inner, self.lock = inner, threading.Lock()

    def read(self):
        with self.lock:
            return self.inner.read()


@MUTANTS.fault("test_partitions_are_read_anywhere_in_any_order_at_once")
class Bound(Lines):
    """Its partitions hold a lock, and do not pickle."""

    def wrapped(self, source):
        class Locked(Wrapped):
            def partitions(self, target_bytes):
                return [LockedPart(each) for each in self.inner.partitions(target_bytes)]

        return Locked(source)


@MUTANTS.fault("test_a_digest_is_of_the_content_alone")
class Headed(Lines):
    """A digest of the first 1,000 bytes."""

    def wrapped(self, source):
        class Beginning(Wrapped):
            def digest(self):
                content = Path(self.inner.files[0].path).read_bytes()
                return hashlib.sha256(content[:1000]).hexdigest()

        return Beginning(source)


@MUTANTS.fault("test_a_digest_is_of_the_content_alone")
class Summed(Lines):
    """A digest in which the order of the rows does not count."""

    def wrapped(self, source):
        class Sum(Wrapped):
            def digest(self):
                lines = Path(self.inner.files[0].path).read_bytes().splitlines()
                found = sum(int(hashlib.sha256(each).hexdigest(), 16) for each in lines)
                return str(found)

        return Sum(source)


@MUTANTS.fault("test_a_change_of_the_same_length_is_told")
class ByLength(Lines):
    """A file of the same length is the same file."""

    def wrapped(self, source):
        class Measured(Wrapped):
            def __init__(self, inner):
                super().__init__(inner)
                self.path = Path(inner.files[0].path)
                self.length = self.path.stat().st_size

            def check_unchanged(self, content=True):
                if self.path.stat().st_size != self.length:
                    self.inner.check_unchanged(content)

        return Measured(source)


class GuessedPart:
    """A partition whose numbers are read by themselves."""

    def __init__(self, inner):
        self.inner = inner

    def read(self):
        batch = self.inner.read()
        texts = batch.column("z").cast(pa.string()).to_pylist()
        if "z" in batch.schema.names and all((each or "").endswith(".0") for each in texts):
            whole = pa.array([each.removesuffix(".0") for each in texts]).cast(
                batch.schema.field("z").type
            )
            batch = batch.set_column(batch.schema.names.index("z"), "z", whole)
        return batch


@MUTANTS.fault("test_a_number_is_one_text_in_any_partitions", quick=True)
class Guessing(Lines):
    """Numbers are whole ones in the partitions that have no missing value and no fraction."""

    def open(self, given, raw):
        source = super().open(given, raw)
        if raw.get("z") not in ("category", "string"):
            return source

        class Guessed(Wrapped):
            def partitions(self, target_bytes):
                found = self.inner.partitions(target_bytes)
                return [GuessedPart(each) for each in found] if len(found) > 1 else found

        return Guessed(source)


class FullPart:
    """A partition of so many rows at most."""

    def __init__(self, inner):
        self.inner = inner

    def read(self):
        return self.inner.read().slice(0, 10_000)


@MUTANTS.fault("test_of_many_rows_none_is_forgotten")
class OneBlock(Lines):
    """Of a partition it reads one block of 10,000 rows."""

    def wrapped(self, source):
        class Cut(Wrapped):
            def partitions(self, target_bytes):
                return [FullPart(each) for each in self.inner.partitions(target_bytes)]

        return Cut(source)


@MUTANTS.fault("test_numbers_in_texts_are_read_as_everywhere")
class Pointed(Lines):
    """Hears nothing of the decimal comma."""

    def open(self, given, raw):
        return super().open(replace(given, options=replace(given.options, decimal=".")), raw)


@MUTANTS.fault("test_numbers_in_texts_are_read_as_everywhere", quick=True)
class Pythonic(Lines):
    """Reads as a number whatever Python does: the code 1_000 is a thousand."""

    def table(self, path, shown):
        found = super().table(path, shown)
        for at, name in enumerate(found.column_names):
            texts = [str(each).replace("_", "") for each in found[name].to_pylist()]
            if all(each.isdigit() for each in texts):
                found = found.set_column(at, name, pa.array([float(each) for each in texts]))
        return found


@MUTANTS.fault("test_spellings_of_missing_values_count")
class Typed(Lines):
    """What stands for a missing value counts in texts alone: a number is never -999."""

    def open(self, given, raw):
        if "number" in raw.values():
            given = replace(given, options=replace(given.options, null_values=("red", "")))
        return super().open(given, raw)


@MUTANTS.fault("test_a_digest_is_of_the_content_alone")
class OfNumbers(Lines):
    """A digest of the numbers alone."""

    def wrapped(self, source):
        class Numbers(Wrapped):
            def digest(self):
                rows = map(json.loads, Path(self.inner.files[0].path).read_text().splitlines()[1:])
                return str([[row["a"], row["z"]] for row in rows])

        return Numbers(source)


@hookimpl
def distcore_make_member(kind, name):
    made = MUTANTS.named(name)
    return made and made()
