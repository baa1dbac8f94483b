"""Loaders with a fault each: a plain one that permutes the rows of a split, and the built-in one."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time

import numpy as np
import pyarrow as pa
from tests.mutants.harness import Around, Mutants

from distcore_core.contracts import LOADER, Rank
from distcore_core.hooks import hookimpl
from distcore_core.registry.manager import Plugins
from distcore_testing import LoaderSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("loaders", LoaderSuite)

ONCE = "test_every_row_once_in_every_epoch_in_batches_of_the_size_asked"
RANKS = "test_the_same_global_batches_for_any_number_of_ranks"
SPLITS = "test_each_split_has_its_own_rows"
START = "test_any_start_goes_on_where_it_says_also_under_other_ranks"
ORDER = "test_epochs_and_seeds_differ"
FRESH = "test_one_loader_gives_epoch_after_epoch_what_fresh_ones_give"
ANY_ROWS = "test_any_number_of_rows_over_any_number_of_ranks"
PARTS = "test_parts_have_the_same_rows_for_any_number_of_ranks"


@MUTANTS.sound
class Plain:
    """Reads the split at once; an epoch is a permutation of its rows, cut into batches, and a
    rank has an even run of each."""

    def __init__(self, request):
        from distcore_torch.batch import Layout

        self.request, self.rank, self.size = request, request.rank, request.batch_size
        self.layout = Layout.of(request.reader.columns[name] for name in request.columns)
        self.count = self.rows()
        self.table = request.reader.read(self.split(), 0, self.count, list(request.columns))

    def split(self):
        return self.request.split

    def rows(self):
        return self.request.reader.rows(self.request.split)

    def order(self, epoch):
        """The rows of an epoch."""
        if not self.request.shuffle:
            return np.arange(self.count)
        return self.dice(epoch).permutation(self.count)

    def dice(self, epoch):
        return np.random.default_rng([self.request.seed, epoch])

    def cut(self, order):
        """The global batches of an epoch."""
        return [order[at : at + self.size] for at in range(0, self.count, self.size)]

    def share(self, whole):
        """The rank's runs of a global batch: as many as it has parts."""
        parts, rank = self.request.parts or self.rank.world, self.rank
        cuts = [len(whole) * part // parts for part in range(parts + 1)]
        mine = range(rank.index * parts // rank.world, (rank.index + 1) * parts // rank.world)
        return [whole[cuts[part] : cuts[part + 1]] for part in mine]

    def batch(self, runs):
        from distcore_torch.batch import Batch
        from distcore_torch.packing import pack

        made = pack(self.taken(np.concatenate(runs)), self.layout)
        sizes = [len(run) for run in runs] if self.request.parts else ()
        return Batch(made.packed, self.layout, self.ragged(made.ragged), 0, sizes)

    def taken(self, rows):
        return self.table.take(pa.array(rows))

    def ragged(self, columns):
        return columns

    def batches(self, epoch, start=0):
        for whole in self.cut(self.order(epoch))[start:]:
            yield self.batch(self.share(whole))

    def close(self):
        pass


@MUTANTS.fault(ONCE, quick=True)
class DropsRemainder(Plain):
    """Leaves out the rows that make no whole batch."""

    def cut(self, order):
        return [each for each in super().cut(order) if len(each) == self.size]


@MUTANTS.fault(ONCE)
class PadsRemainder(Plain):
    """Fills the last batch up with the epoch's first rows."""

    def cut(self, order):
        return [np.resize(np.append(each, order), self.size) for each in super().cut(order)]


@MUTANTS.fault(ONCE)
class MergesRemainder(Plain):
    """A last batch that is less than half full is put to the one before."""

    def cut(self, order):
        found = super().cut(order)
        if len(found) > 1 and len(found[-1]) < self.size // 2:
            found[-2:] = [np.concatenate(found[-2:])]
        return found


@MUTANTS.fault(ONCE)
class DrawsAgain(Plain):
    """After the first epoch, rows are drawn with replacement."""

    def order(self, epoch):
        if epoch and self.request.shuffle:
            return self.dice(epoch).integers(0, self.count, self.count)
        return super().order(epoch)


@MUTANTS.fault(RANKS, quick=True)
class DropsForRanks(Plain):
    """Leaves out the rows of a batch that its ranks do not divide."""

    def share(self, whole):
        return super().share(whole[: len(whole) // self.rank.world * self.rank.world])


@MUTANTS.fault(RANKS)
class StridesOverRanks(Plain):
    """Shuffled rows are dealt to ranks one by one, so their order within a batch changes."""

    def share(self, whole):
        if self.request.shuffle and not self.request.parts:
            return [whole[self.rank.index :: self.rank.world]]
        return super().share(whole)


@MUTANTS.fault(RANKS)
class SeedsByRank(Plain):
    """Every rank shuffles in its own order."""

    def dice(self, epoch):
        return np.random.default_rng([self.request.seed, epoch, self.rank.index])


@MUTANTS.fault(ANY_ROWS)
class NeedsARowEach(Plain):
    """A rank without a row of a batch leaves the batch out."""

    def batches(self, epoch, start=0):
        yield from (each for each in super().batches(epoch, start) if each.rows)


@MUTANTS.fault(ORDER, quick=True)
class RepeatsOrder(Plain):
    """The seed alone decides the order, so every epoch has the first one's."""

    def dice(self, epoch):
        return np.random.default_rng(self.request.seed)


@MUTANTS.fault(ORDER)
class AlternatesOrder(Plain):
    """Every second epoch has the same order."""

    def dice(self, epoch):
        return np.random.default_rng([self.request.seed, epoch % 2])


@MUTANTS.fault(ORDER)
class ShuffledBatches(Plain):
    """The same rows meet in a batch in every epoch: only the batches are shuffled."""

    def order(self, epoch):
        if not self.request.shuffle:
            return np.arange(self.count)
        whole = self.count // self.size
        runs = np.arange(self.count)[: whole * self.size].reshape(whole, self.size)
        mixed = runs[self.dice(epoch).permutation(whole)]
        return np.concatenate([mixed.ravel(), np.arange(whole * self.size, self.count)])


@MUTANTS.fault(ORDER)
class Rotates(Plain):
    """An epoch is the row order from another row on."""

    def order(self, epoch):
        first = self.dice(epoch).integers(0, self.count) if self.request.shuffle else 0
        return np.roll(np.arange(self.count), -first)


@MUTANTS.fault("test_without_shuffling_rows_come_in_order_cut_evenly")
class AlwaysShuffles(Plain):
    """Rows are shuffled also if they are to come in order."""

    def order(self, epoch):
        return self.dice(epoch).permutation(self.count)


@MUTANTS.fault(START)
class ForgetfulInOrder(Plain):
    """Without shuffling it starts from the beginning wherever it is told to start."""

    def batches(self, epoch, start=0):
        yield from super().batches(epoch, start if self.request.shuffle else 0)


@MUTANTS.fault(START)
class SkipsRowsOfItsShare(Plain):
    """A start skips whole batches' rows of the rank's own share, so ranks start elsewhere."""

    def batches(self, epoch, start=0):
        skipped = start * self.size // self.rank.world
        yield from super().batches(epoch, skipped // max(1, self.size))


@MUTANTS.fault(START)
class ReshufflesTheRest(Plain):
    """A resumed epoch has the rows that are left, in another order."""

    def batches(self, epoch, start=0):
        order = self.order(epoch)
        if start and self.request.shuffle:
            order[start * self.size :] = order[start * self.size :][::-1].copy()
        for whole in self.cut(order)[start:]:
            yield self.batch(self.share(whole))


@MUTANTS.fault(FRESH)
class GoesOnDrawing(Plain):
    """One generator for all epochs: an epoch depends on those that were asked for before."""

    def __init__(self, request):
        super().__init__(request)
        self.generator = np.random.default_rng([request.seed, 0])

    def dice(self, epoch):
        return self.generator if epoch else super().dice(epoch)


@MUTANTS.fault(FRESH)
class RemembersWhereItWas(Plain):
    """After an epoch that was given up it goes on from there."""

    left = 0

    def batches(self, epoch, start=0):
        found = self.cut(self.order(epoch))
        start, self.left = start or self.left, 0
        for number, whole in enumerate(found[start:], start):
            self.left = number
            yield self.batch(self.share(whole))
        self.left = 0


@MUTANTS.fault(SPLITS)
class TakesTheTrainingRows(Plain):
    """Gives the validation split for the test split."""

    def split(self):
        return "validation" if self.request.split == "test" else self.request.split

    def rows(self):
        return self.request.reader.rows(self.split())


@MUTANTS.fault(SPLITS)
class DropsOfEvaluation(Plain):
    """Leaves the last batch out if it is short, in other splits than the training's."""

    def cut(self, order):
        found = super().cut(order)
        return found if self.request.split == "train" else found[:-1] or found


@MUTANTS.fault(RANKS)
class RaggedOfRankZero(Plain):
    """Ragged columns are those of rank 0's share."""

    def share(self, whole):
        self.of_zero = whole[: len(whole) // self.rank.world]
        return super().share(whole)

    def ragged(self, columns):
        from distcore_torch.packing import ragged_of

        table = super().taken(self.of_zero)
        if self.rank.index == 0 or not len(self.of_zero):
            return columns
        return {name: ragged_of(table.column(name)) for name in columns}


@MUTANTS.fault(ONCE)
class OffsetsOfTheWhole(Plain):
    """A row's ragged values end where those of the row before end."""

    def ragged(self, columns):
        from distcore_torch.batch import Ragged

        return {
            name: Ragged(each.values, each.offsets.roll(1).clamp(min=0))
            for name, each in columns.items()
        }


@MUTANTS.fault(ONCE)
class ThroughFloats(Plain):
    """Codes pass through float32 and lose their last digits."""

    def taken(self, rows):
        found = super().taken(rows)
        if "code" not in found.schema.names:
            return found
        at = found.schema.get_field_index("code")
        code = found.column(at).to_numpy().astype(np.float32).clip(-(2.0**31), 2.0**31 - 256)
        return found.set_column(at, "code", pa.array(code.astype(np.int32)))


@MUTANTS.fault(ONCE)
class FillsHoles(Plain):
    """What is no number becomes nought."""

    def taken(self, rows):
        found = super().taken(rows)
        if "x" not in found.schema.names:
            return found
        at = found.schema.get_field_index("x")
        return found.set_column(at, "x", pa.array(np.nan_to_num(found.column(at).to_numpy())))


@MUTANTS.fault(PARTS)
class PartsByRank(Plain):
    """Parts are cut from a rank's share, so their rows depend on the number of ranks."""

    def share(self, whole):
        rank, mine = self.rank, len(super().share(whole))
        low, high = (len(whole) * each // rank.world for each in (rank.index, rank.index + 1))
        return np.array_split(whole[low:high], mine)


@MUTANTS.fault("test_random_numbers_of_others_are_neither_used_nor_changed")
class GlobalGenerator(Plain):
    """Seeds numpy's global generator for every epoch."""

    def dice(self, epoch):
        np.random.seed((self.request.seed * 1_000_003 + epoch) % 2**32)
        return np.random

    def order(self, epoch):
        self.dice(epoch)
        return np.random.permutation(self.count) if self.request.shuffle else np.arange(self.count)


@MUTANTS.fault("test_random_numbers_of_others_are_neither_used_nor_changed")
class UnseededTies(Plain):
    """Mixes the run's seed with the process's random numbers."""

    def dice(self, epoch):
        return np.random.default_rng([self.request.seed, epoch, random.getrandbits(8)])


@MUTANTS.fault("test_closing_leaves_no_thread_no_process_and_no_file")
class LeavesThread(Plain):
    """Its thread that reads ahead lives on after it is closed."""

    def batches(self, epoch, start=0):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        yield from super().batches(epoch, start)


@MUTANTS.fault("test_closing_leaves_no_thread_no_process_and_no_file")
class LeavesWorker(Plain):
    """Its process that reads ahead lives on after it is closed."""

    def batches(self, epoch, start=0):
        subprocess.Popen(["sleep", "90"])
        yield from super().batches(epoch, start)


@MUTANTS.fault(ORDER)
class AddsSeed(Plain):
    """The next seed has the orders of this one, an epoch earlier."""

    def dice(self, epoch):
        return np.random.default_rng(self.request.seed + epoch)


@MUTANTS.fault("test_the_columns_that_were_asked_for")
class AllColumns(Plain):
    """Gives every column of the cache, whichever are asked for."""

    def __init__(self, request):
        from dataclasses import replace

        super().__init__(replace(request, columns=list(request.reader.columns)))


class AroundPacked(Around):
    """asked: what the built-in loader is asked for instead."""

    def __init__(self, request):
        super().__init__(Plugins().make(LOADER, "packed", {}, request=self.asked(request)))

    @staticmethod
    def asked(request):
        return request


@MUTANTS.sound
class BuiltIn(AroundPacked):
    """The built-in one."""


@MUTANTS.fault(ONCE)
class Short(AroundPacked):
    """Leaves the last batch out."""

    def batches(self, epoch, start=0):
        kept = list(self.inner.batches(epoch, start))
        yield from kept[:-1]


@MUTANTS.fault(RANKS)
class Greedy(AroundPacked):
    """Every rank reads the whole batch."""

    @staticmethod
    def asked(request):
        from dataclasses import replace

        return replace(request, rank=Rank())


class Elsewhere(Plain):
    """salt: of the process."""

    def dice(self, epoch):
        return np.random.default_rng([self.request.seed, epoch, self.salt()])


@MUTANTS.fault("test_another_process_gives_the_same_batches")
class ByTheHour(Elsewhere):
    """The order changes with the hour."""

    def salt(self):
        return int(time.time() // 3600)


@MUTANTS.fault("test_another_process_gives_the_same_batches")
class ByProcess(Elsewhere):
    """The order changes with the process."""

    def salt(self):
        return os.getpid()


@MUTANTS.fault("test_another_process_gives_the_same_batches")
class ByHash(Elsewhere):
    """The order changes with Python's hash of the split's name."""

    def salt(self):
        return hash(self.request.split) % 2**32


@MUTANTS.fault(ORDER)
class EightOrders(Plain):
    """Every eighth epoch has the same order."""

    def dice(self, epoch):
        return np.random.default_rng([self.request.seed, epoch % 8])


@MUTANTS.fault("test_batches_stay_as_they_are")
class OneBuffer(Plain):
    """Every batch lies where the one before it lay."""

    def __init__(self, request):
        super().__init__(request)
        self.buffer = None

    def batch(self, runs):
        from distcore_torch.batch import Batch

        made = super().batch(runs)
        if self.buffer is None:
            self.buffer = made.packed.clone()
        if len(made.packed) > len(self.buffer):
            self.buffer = made.packed.clone()
        mine = self.buffer[: len(made.packed)]
        mine.copy_(made.packed)
        return Batch(mine, self.layout, made.ragged, 0, made.part_rows)


@hookimpl
def distcore_make_loader(name, request):
    made = MUTANTS.named(name)
    return made and made(request)
