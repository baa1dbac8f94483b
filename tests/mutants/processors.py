"""Processors with a fault each, around the local one."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial

from tests.mutants.harness import Around, Mutants

from distcore_core.contracts import PROCESSOR
from distcore_core.hooks import hookimpl
from distcore_core.registry.manager import Plugins
from distcore_testing import ProcessorSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("processors", ProcessorSuite)


@MUTANTS.sound
class Sound(Around):
    """The local one."""


@MUTANTS.fault("test_every_partition_is_read_once_and_every_row_comes_in_its_shard", quick=True)
class Disordered(Around):
    """A shard's blocks in another order."""

    def write_shards(self, plans, write):
        return self.inner.write_shards(plans, partial(_backwards, write))


def _backwards(write, plan, blocks):
    return write(plan, blocks[::-1])


@MUTANTS.fault("test_every_partition_is_read_once_and_every_row_comes_in_its_shard")
class Rereading(Around):
    """Reads every partition twice."""

    def scan(self, source, scratch=None):
        for part in source.partitions(1 << 20):
            part.read()
        return self.inner.scan(source, scratch)


@MUTANTS.fault("test_every_partition_is_read_once_and_every_row_comes_in_its_shard")
class OwnBytes(Around):
    """Merges its statistics by halves that it rounds."""

    def fold(self, partial, merge):
        merged, rows = self.inner.fold(partial, merge)
        return merge(merged, merged), rows


@MUTANTS.fault("test_errors_of_statistics_and_writers_are_told_as_they_are")
class SwallowsWriters(Around):
    """A shard whose writer failed is left out without a word."""

    def write_shards(self, plans, write):
        found = []
        for plan in plans:
            try:
                found += self.inner.write_shards([plan], write)
            except ValueError:
                continue
        return found


@MUTANTS.fault("test_errors_of_statistics_and_writers_are_told_as_they_are")
class WrapsErrors(Around):
    """What a writer raises is told as an error of the engine."""

    def write_shards(self, plans, write):
        try:
            return self.inner.write_shards(plans, write)
        except ValueError as error:
            raise RuntimeError("a task failed") from error


@MUTANTS.fault("test_errors_of_statistics_and_writers_are_told_as_they_are")
class LastWriterFirst(Around):
    """Of several writers' errors the last one is told."""

    def write_shards(self, plans, write):
        return [self.inner.write_shards([plan], write)[0] for plan in plans[::-1]][::-1]


@MUTANTS.fault("test_of_several_errors_the_first_in_row_order_is_told")
class LastErrorFirst(Around):
    """Partitions are read from the last one on, and the first error that comes is told."""

    def scan(self, source, scratch=None):
        self.parts = source.partitions(1 << 20)
        return self.inner.scan(source, scratch)

    def fold(self, partial, merge):
        for part in self.parts[::-1]:
            if part.bad:
                part.read()
        return self.inner.fold(partial, merge)


@MUTANTS.fault("test_empty_partitions", quick=True)
class SkipsEmpty(Around):
    """A partition without rows has no place among the blocks."""

    def fold(self, partial, merge):
        merged, rows = self.inner.fold(partial, merge)
        return merged, [each for each in rows if each]


VALUES = "test_statistics_and_writers_see_every_value_where_it_is"
LEFT = "test_nothing_is_left_once_it_is_closed"


def _filled(table):
    import pyarrow as pa

    columns = []
    for each in table.columns:
        if pa.types.is_floating(each.type):
            each = each.fill_null(0.0)
        columns.append(each)
    return pa.record_batch(columns, names=table.schema.names)


@MUTANTS.fault(VALUES)
class FillsLaterBlocks(Around):
    """Missing numbers count as nought in the statistics of every block but the first."""

    def fold(self, partial, merge):
        return self.inner.fold(functools.partial(_fill_later, partial), merge)


def _fill_later(inner, block):
    if block.index:
        block = replace(block, table=_filled(block.table))
    return inner(block)


@MUTANTS.fault(VALUES)
class Recounting(Around):
    """Tells a writer the rows of its blocks as if each shard began at row 0."""

    def write_shards(self, plans, write):
        return self.inner.write_shards(plans, partial(_recounted, write))


def _recounted(write, plan, blocks):
    first = blocks[0].start if blocks else 0
    return write(plan, [replace(each, start=each.start - first) for each in blocks])


@MUTANTS.fault(VALUES)
class FillsForWriters(Around):
    """Missing names are written as empty ones, but for the first block's."""

    def write_shards(self, plans, write):
        return self.inner.write_shards(plans, partial(_emptied, write))


def _emptied(write, plan, blocks):
    import pyarrow as pa

    def without(block):
        columns = []
        for each in block.table.columns:
            if pa.types.is_dictionary(each.type):
                each = each.cast(pa.string()).fill_null("").dictionary_encode().cast(each.type)
            columns.append(each)
        return replace(block, table=pa.record_batch(columns, names=block.table.schema.names))

    return write(plan, [without(each) if each.index else each for each in blocks])


@MUTANTS.fault(LEFT)
class LeavesThreads(Around):
    """A thread of its own lives on after it was closed."""

    def scan(self, source, scratch=None):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        return self.inner.scan(source, scratch)


@MUTANTS.fault(LEFT)
class LeavesProcesses(Around):
    """A process of its own lives on after it was closed."""

    def scan(self, source, scratch=None):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        return self.inner.scan(source, scratch)


@MUTANTS.fault(LEFT)
class Littering(Around):
    """Leaves files in its scratch folder."""

    def scan(self, source, scratch=None):
        if scratch is not None:
            (scratch / "parts").write_text("1")
        return self.inner.scan(source, scratch)


@hookimpl
def distcore_make_processor(name):
    made = MUTANTS.named(name)
    return made and made(Plugins().make(PROCESSOR, "local", {"parallelism": 2}))
