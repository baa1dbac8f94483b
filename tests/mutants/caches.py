"""Cache formats with a fault each: Arrow files."""

from __future__ import annotations

import base64
import getpass
import io
import os
import pickle
import socket
import tempfile
import time
import unicodedata
import uuid
from datetime import datetime

import numpy as np
import pyarrow as pa
from tests.mutants.harness import Mutants

from distcore_core.hooks import hookimpl
from distcore_testing import CacheFormatSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("caches", CacheFormatSuite)
KEPT = {}


@MUTANTS.sound
class Sound:
    suffix = ".arrow"

    metadata = staticmethod(dict)

    def write(self, target, table):
        schema = pa.schema([(field.name, field.type) for field in table.schema])
        table = (
            table.combine_chunks().take(np.arange(table.num_rows)).combine_chunks()
        )  # no offset of a slice is left
        table = table.cast(schema).replace_schema_metadata(self.metadata())
        with pa.ipc.new_file(target, table.schema) as writer:
            writer.write_table(table)

    def open(self, source):
        return Shard(pa.ipc.open_file(source).read_all(), source)


class Shard:
    def __init__(self, table, source=None):
        self.table, self.rows, self.source = table, table.num_rows, source

    def read(self, start=0, stop=None, columns=None):
        stop = self.rows if stop is None else stop
        if not 0 <= start <= stop <= self.rows:
            raise IndexError(start, stop)
        part = self.table.slice(start, stop - start)
        part = (part if columns is None else part.select(columns)).combine_chunks()
        batches = part.to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=part.schema)

    def close(self):
        if self.source is not None:
            self.source.close()


@MUTANTS.fault("test_equal_tables_give_equal_bytes", quick=True)
class Stamped(Sound):
    """Equal tables, other bytes."""

    def metadata(self):
        return {"written": uuid.uuid4().hex}


@MUTANTS.fault("test_reading_gives_back_every_bit")
class Lossy(Sound):
    """What is no number becomes nought."""

    def write(self, target, table):
        values = np.nan_to_num(table.column("x").to_numpy()) if "x" in table.column_names else None
        at = table.schema.get_field_index("x")
        super().write(
            target, table if values is None else table.set_column(at, "x", pa.array(values))
        )


@MUTANTS.fault("test_a_shard_that_was_cut_is_not_read_as_a_shorter_one")
class Lenient(Sound):
    """Reads what is left of a file that was cut."""

    def open(self, source):
        content = source.read()
        try:
            return super().open(io.BytesIO(content))
        except (pa.ArrowInvalid, OSError):
            return Shard(pa.table({"x": pa.array([], pa.float32())}))


@MUTANTS.fault("test_chosen_columns_in_the_order_asked")
class Whole(Sound):
    """All columns, whichever are asked for."""

    def open(self, source):
        shard = super().open(source)
        read = shard.read
        shard.read = lambda start=0, stop=None, columns=None: read(start, stop)
        return shard


@MUTANTS.fault("test_any_ranges_in_any_order_of_one_open_shard", quick=True)
class Keeping(Sound):
    """A read from where one began before gives that one's rows."""

    def open(self, source):
        shard, kept = super().open(source), {}
        read = shard.read

        def first(start=0, stop=None, columns=None):
            found = kept.setdefault(start // 1000, read(start, stop))
            return found if columns is None else found.select(columns)

        shard.read = first
        return shard


@MUTANTS.fault("test_several_open_shards_do_not_see_each_other", quick=True)
class KeepingForAll(Sound):
    """What was read is kept by the place of its rows, for whichever shard is open, until one
    closes."""

    def open(self, source):
        shard = super().open(source)
        read, close = shard.read, shard.close
        shard.read = lambda start=0, stop=None, columns=None: KEPT.setdefault(
            (start, stop, columns and tuple(columns)), read(start, stop, columns)
        )
        shard.close = lambda: (KEPT.clear(), close())
        return shard


@MUTANTS.fault("test_rows_out_of_range_are_refused")
class Clamping(Sound):
    """Rows that are not there are left out."""

    def open(self, source):
        shard = super().open(source)
        read = shard.read

        def clamped(start=0, stop=None, columns=None):
            stop = min(shard.rows if stop is None else stop, shard.rows)
            return read(min(max(start, 0), stop), stop, columns)

        shard.read = clamped
        return shard


@MUTANTS.fault("test_close_closes_the_source")
class Holding(Sound):
    """The source stays open."""

    def open(self, source):
        shard = super().open(source)
        shard.source = None
        return shard


@MUTANTS.fault("test_a_full_disk_keeps_its_errno")
class Vague(Sound):
    """An error of the disk loses its number."""

    def write(self, target, table):
        try:
            super().write(target, table)
        except OSError as error:
            raise OSError(f"it cannot be written: {error}") from error


class Changed(Sound):
    """Changes what is read."""

    def open(self, source):
        shard = super().open(source)
        read = shard.read
        shard.read = lambda start=0, stop=None, columns=None: self.changed(
            start, read(start, stop, columns)
        )
        return shard


LARGE = "test_a_large_shard_of_many_columns_gives_back_every_bit"


@MUTANTS.fault(LARGE, quick=True)
class SecondAsFirst(Changed):
    """A second column of a type is read as the first."""

    def changed(self, start, found):
        if not {"code", "code2"} <= set(found.schema.names):
            return found
        at = found.schema.get_field_index("code2")
        return found.set_column(at, "code2", found.column("code"))


@MUTANTS.fault(LARGE)
class ShortOffsets(Changed):
    """Lists after row 16,384 lose their first value's sign."""

    def changed(self, start, found):
        if start < 16_384 or "words" not in found.schema.names or not found.num_rows:
            return found
        at = found.schema.get_field_index("words")
        lists = found.column("words")
        offsets = pa.array(np.concatenate([[0], np.cumsum(lists.value_lengths())]), pa.int32())
        values = pa.array(np.abs(lists.flatten().to_numpy()))
        return found.set_column(at, "words", pa.ListArray.from_arrays(offsets, values))


class Rewriting(Sound):
    """Changes what is written."""

    def write(self, target, table):
        for at, name in enumerate(table.column_names):
            column = table.column(name).combine_chunks()
            table = table.set_column(at, name, self.changed(column))
        super().write(target, table)


@MUTANTS.fault(LARGE)
class PositiveZero(Rewriting):
    """In vectors -0.0 becomes 0.0."""

    def changed(self, column):
        if pa.types.is_fixed_size_list(column.type) and pa.types.is_float32(column.type.value_type):
            values = column.flatten().to_numpy() + np.float32(0.0)
            return pa.FixedSizeListArray.from_arrays(pa.array(values), column.type.list_size)
        return column


@MUTANTS.fault(LARGE)
class OneNan(Rewriting):
    """What is no number is written as one and the same NaN."""

    def changed(self, column):
        if pa.types.is_float32(column.type):
            values = column.to_numpy().copy()
            values[np.isnan(values)] = np.nan
            return pa.array(values)
        return column


@MUTANTS.fault(LARGE)
class ListsThroughFloats(Rewriting):
    """Values of lists pass through float32, which int32's limits do not fit."""

    def changed(self, column):
        if pa.types.is_list(column.type):
            column = pa.concat_arrays([column])
            values = column.flatten().to_numpy().astype(np.float32).clip(-(2.0**31), 2.0**31 - 256)
            offsets = np.concatenate([[0], np.cumsum(column.value_lengths())])
            return pa.ListArray.from_arrays(
                pa.array(offsets, pa.int32()), pa.array(values.astype(np.int32))
            )
        return column


@MUTANTS.fault("test_another_process_writes_the_same_bytes")
class ByHash(Sound):
    """The metadata of a shard depend on the order of a set."""

    def metadata(self):
        return {"columns": ",".join({f"column-{each}" for each in range(20)})}


@MUTANTS.fault("test_another_process_writes_the_same_bytes")
class Dated(Sound):
    """The metadata of a shard have the minute in which it was written."""

    def metadata(self):
        return {"written": f"{datetime.now():%Y-%m-%d %H:%M}"}


@MUTANTS.fault("test_another_process_writes_the_same_bytes")
class ByUnixTime(Sound):
    """The metadata of a shard have the minute in which it was written, by Unix's time."""

    def metadata(self):
        return {"written": str(int(time.time()) // 60)}


@MUTANTS.fault("test_another_process_writes_the_same_bytes")
class ByHost(Sound):
    """The metadata of a shard have the host's name."""

    def metadata(self):
        return {"host": socket.gethostname()}


@MUTANTS.fault("test_another_process_writes_the_same_bytes")
class ByUser(Sound):
    """The metadata of a shard have the user's name."""

    def metadata(self):
        return {"user": getpass.getuser()}


@MUTANTS.fault("test_another_process_writes_the_same_bytes")
class ByFolder(Sound):
    """The metadata of a shard have the folder that it was written in."""

    def metadata(self):
        return {"folder": os.getcwd()}


@MUTANTS.fault("test_another_process_writes_the_same_bytes")
class ByName(Sound):
    """A shard ends with the name of its file, as a gzip header has it."""

    def write(self, target, table):
        self.name = str(getattr(target, "name", ""))
        super().write(target, table)

    def metadata(self):
        return {"name": self.name}


class Headed(Sound):
    """The names of the columns stand in a header of its own."""

    def write(self, target, table):
        self.names = table.column_names
        super().write(target, table)

    def open(self, source):
        table = pa.ipc.open_file(source).read_all()
        header = table.schema.metadata.get(b"header")
        return Shard(table.select(self.names_in(header)), source)


@MUTANTS.fault("test_reading_runs_nothing_that_a_file_says", quick=True)
class Unpickling(Headed):
    """Its header is a pickle."""

    def metadata(self):
        return {"header": base64.b64encode(pickle.dumps(self.names))}

    def names_in(self, header):
        return pickle.loads(base64.b64decode(header))  # noqa: S301 - the fault


@MUTANTS.fault("test_reading_runs_nothing_that_a_file_says")
class UnpicklingByAnObject(Unpickling):
    """Its header is a pickle, read by an `Unpickler`."""

    def names_in(self, header):
        return pickle.Unpickler(io.BytesIO(base64.b64decode(header))).load()  # noqa: S301


@MUTANTS.fault("test_reading_runs_nothing_that_a_file_says")
class Evaluating(Headed):
    """Its header is Python that is evaluated."""

    def metadata(self):
        return {"header": repr(self.names)}

    def names_in(self, header):
        return eval(header)  # noqa: S307 - the fault


@MUTANTS.fault("test_a_shard_of_any_number_of_rows_gives_back_every_bit")
class SixteenBits(Sound):
    """Counts rows in 16 bits."""

    def open(self, source):
        shard = super().open(source)
        shard.rows &= 0xFFFF
        return shard


@MUTANTS.fault("test_batches_outlive_the_next_read_and_the_reader")
class OneBuffer(Sound):
    """Every read lays its codes into one buffer, where those of the read before were."""

    def open(self, source):
        shard = super().open(source)
        read, buffer = shard.read, np.zeros(shard.rows, np.int32)

        def reading(start=0, stop=None, columns=None):
            found = read(start, stop, columns)
            if "code" not in found.schema.names:
                return found
            at = found.schema.get_field_index("code")
            buffer[: found.num_rows] = found.column(at).to_numpy()
            code = pa.Array.from_buffers(pa.int32(), found.num_rows, [None, pa.py_buffer(buffer)])
            return found.set_column(at, "code", code)

        shard.read = reading
        return shard


COUNTS = "test_a_shard_of_any_number_of_rows_gives_back_every_bit"
SHAPES = "test_columns_of_any_name_width_and_number_give_back_every_bit"
LEFT = "test_writing_and_reading_leave_nothing_open_and_no_file"


@MUTANTS.fault(COUNTS)
class WholeGroups(Sound):
    """The last group of 4,096 rows is forgotten if it is full."""

    def write(self, target, table):
        full = table.num_rows and table.num_rows % 4096 == 0
        super().write(target, table.slice(0, table.num_rows - 4096) if full else table)


@MUTANTS.fault(SHAPES)
class Flattened(Sound):
    """A slash in a column's name becomes an underscore, as a path has it."""

    def write(self, target, table):
        super().write(
            target, table.rename_columns([n.replace("/", "_") for n in table.column_names])
        )


@MUTANTS.fault(SHAPES)
class OneSpelling(Sound):
    """Names of columns are brought to one form of Unicode."""

    def write(self, target, table):
        names = [unicodedata.normalize("NFC", each) for each in table.column_names]
        super().write(target, table.rename_columns(names))


@MUTANTS.fault(SHAPES)
class ShortLists(Rewriting):
    """A list of more than 65,535 values is cut."""

    def changed(self, column):
        if not pa.types.is_list(column.type):
            return column
        column = pa.concat_arrays([column])
        return pa.array([each[:65_535] for each in column.to_pylist()], column.type)


@MUTANTS.fault(COUNTS)
class Runs(Rewriting):
    """Equal values in a row are counted in 16 bits."""

    def changed(self, column):
        if not pa.types.is_int32(column.type) or not len(column):
            return column
        values = column.to_numpy().copy()
        edges = np.flatnonzero(np.diff(values, prepend=values[0] - 1 & 1))
        for start, stop in zip(edges, [*edges[1:], len(values)], strict=True):
            values[start + 65_535 : stop] = 0
        return pa.array(values)


@MUTANTS.fault(LEFT)
class Spilling(Sound):
    """Writes through a temporary file that it leaves behind."""

    def write(self, target, table):
        with tempfile.NamedTemporaryFile(delete=False) as spilled:
            super().write(spilled, table)
        with open(spilled.name, "rb") as file:
            target.write(file.read())


@MUTANTS.fault(LEFT)
class Mapping(Sound):
    """Each shard that it opens takes another descriptor, which stays open."""

    kept: list = []  # noqa: RUF012

    def open(self, source):
        self.kept.append(os.dup(2))
        return super().open(source)


@hookimpl
def distcore_make_cache(name):
    made = MUTANTS.named(name)
    return made and made()
