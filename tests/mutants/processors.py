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


@hookimpl
def distcore_make_processor(name):
    made = MUTANTS.named(name)
    return made and made(Plugins().make(PROCESSOR, "local", {"parallelism": 2}))
