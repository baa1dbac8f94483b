"""Cache formats with a fault each: Arrow files."""

from __future__ import annotations

import io
import uuid

import numpy as np
import pyarrow as pa
from tests.mutants.harness import Mutants

from distcore_core.hooks import hookimpl
from distcore_testing import CacheFormatSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("caches", CacheFormatSuite)


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


@hookimpl
def distcore_make_cache(name):
    made = MUTANTS.named(name)
    return made and made()
