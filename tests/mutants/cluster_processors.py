"""Processors over other processes with a fault each: a pool of two on this machine."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import accumulate

from tests.mutants.harness import Mutants

from distcore_core.hooks import hookimpl
from distcore_data import cluster_tasks as tasks
from distcore_data.sources.tiles import cut_evenly
from distcore_testing import ClusterProcessorSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("processors", ClusterProcessorSuite)


@MUTANTS.sound
class Pooled:
    """A pool of processes for each pass; a pass that lost one is run again."""

    def __init__(self):
        self.folder, self.partitions, self.kept, self.starts = None, (), {}, []

    def scan(self, source, scratch=None):
        self.close()
        self.folder = tempfile.mkdtemp(prefix="rows-", dir=scratch)
        self.partitions = cut_evenly(source.partitions, 2)
        return len(self.partitions)

    def fold(self, partial, merge):
        parts = self.run(
            tasks.read_and_fold,
            [
                (index, each, partial, self.folder, None)
                for index, each in enumerate(self.partitions)
            ],
        )
        folded = tasks.merge_folded(merge, parts)
        if folded.failure is not None:
            tasks.raise_failure(folded.failure)
        self.kept = {index: path for index, _, path in folded.kept}
        rows = [rows for _, rows, _ in sorted(folded.kept)]
        self.starts = [*accumulate(rows, initial=0)]
        return folded.state, rows

    def write_shards(self, plans, write):
        pieces = [tasks.slices(plan, self.starts) for plan in plans]
        found = self.run(
            tasks.write,
            [
                (write, plan, each, [self.kept[piece.index] for piece in each], None)
                for plan, each in zip(plans, pieces, strict=True)
            ],
        )
        tasks.raise_first(found)
        return found

    def run(self, function, arguments):
        while True:
            try:
                with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
                    return list(pool.map(function, *zip(*arguments, strict=True)))
            except BrokenProcessPool:
                pass

    def close(self):
        if self.folder is not None:
            shutil.rmtree(self.folder)
            self.folder = None


@MUTANTS.fault("test_no_task_runs_in_the_driver", quick=True)
class Inside(Pooled):
    """Its tasks run in the driver."""

    def run(self, function, arguments):
        return [function(*each) for each in arguments]


@hookimpl
def distcore_make_processor(name):
    made = MUTANTS.named(name)
    return made and made()
