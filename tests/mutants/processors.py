"""Processors with a fault each, around the local one."""

from __future__ import annotations

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


@hookimpl
def distcore_make_processor(name):
    made = MUTANTS.named(name)
    return made and made(Plugins().make(PROCESSOR, "local", {"parallelism": 2}))
