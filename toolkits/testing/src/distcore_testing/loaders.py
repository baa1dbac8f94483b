"""What every loader must hold: every row once an epoch with its own values, the same global
batches for any number of ranks, any start, each epoch in an order of its own."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distcore_core.contracts import LOADER, Loader, LoadRequest, Rank
from distcore_core.registry.manager import Plugins
from distcore_testing import data
from distcore_testing.app import app
from distcore_testing.elsewhere import said_elsewhere
from distcore_testing.rank_jobs import processes_of, until
from distcore_testing.rows import Rows

EPOCHS = range(4)
CHILD = """
import json, sys
from distcore_testing.other_place import CHANGES, HOST, TIME
for each in (TIME, HOST):
    CHANGES[each]("")
from distcore_testing.loaders import LoaderSuite
from distcore_testing.rows import Rows
suite = LoaderSuite()
suite.name, options, suite.batch_size, asked = json.load(sys.stdin)
suite.variants = (options,)
rows = Rows(train=389, validation=107, test=50)
found = [suite.batches(rows, epoch=epoch, start=start) for epoch, start in asked]
print("FOUND" + json.dumps([[batch.tolist() for batch in each] for each in found]))
"""
SHUFFLE = pytest.mark.parametrize("shuffle", [True, False])


class LoaderSuite:
    """Subclass with `name`, and the `variants` of options that must all give the same batches.

    worlds: the numbers of ranks that are tried beside one. parts: whether the loader cuts batches
    into parts, which exact training needs."""

    name: str
    variants: tuple[Mapping[str, Any], ...] = ({},)
    batch_size = 48
    worlds: tuple[int, ...] = (2, 3, 4)
    parts: bool = True
    plugins = Plugins()

    @pytest.fixture(scope="class")
    @classmethod
    def rows(cls) -> Rows:
        """Splits that are no multiple of a batch, which no number of ranks divides."""
        return Rows(train=389, validation=107, test=50)

    # -------------------------------------------------------------- what the tests ask with

    @contextmanager
    def loader(self, rows: Any, rank: Rank | None = None, **changes: Any) -> Iterator[Loader]:
        """A loader of this rank. changes: of the request; `options` among them."""
        options = changes.pop("options", self.variants[0])
        wanted = {"split": "train", "batch_size": self.batch_size, "seed": 7, **changes}
        wanted.setdefault("columns", list(rows.columns))
        request = LoadRequest(reader=rows, rank=rank or Rank(), **wanted)
        made = self.plugins.make(LOADER, self.name, options, request=request)
        try:
            yield made
        finally:
            made.close()
            made.close()  # closing twice is fine

    def shares(
        self, rows: Rows, world: int = 1, *, epoch: int = 0, start: int = 0, **changes: Any
    ) -> list[list[Any]]:
        """Of each rank, the row numbers of its share of each global batch; every value of every
        row is looked at."""
        found = []
        for index in range(world):
            rank = Rank(index=index, world=world, local_rank=index)
            with self.loader(rows, rank, **changes) as loader:
                split = changes.get("split", "train")
                found.append([rows.checked(split, each) for each in loader.batches(epoch, start)])
        counts = [len(each) for each in found]
        assert len(set(counts)) == 1, f"ranks have {counts} batches"
        return found

    def batches(self, rows: Rows, world: int = 1, **changes: Any) -> list[Any]:
        """The row numbers of each global batch, ranks side by side; arguments as of `shares`."""
        shares = self.shares(rows, world, **changes)
        return [np.concatenate(parts) for parts in zip(*shares, strict=True)]

    # -------------------------------------------------------------- every row once

    @SHUFFLE
    @pytest.mark.parametrize("batch_size", [48, 7, 100, 389, 4096])
    def test_every_row_once_in_every_epoch_in_batches_of_the_size_asked(
        self, rows: Rows, batch_size: int, shuffle: bool
    ) -> None:
        """The last batch has what is left over."""
        for epoch in EPOCHS:
            found = self.batches(rows, epoch=epoch, batch_size=batch_size, shuffle=shuffle)
            _once(found, rows, "train", batch_size)

    @SHUFFLE
    def test_any_number_of_rows_over_any_number_of_ranks(self, shuffle: bool) -> None:
        """None, fewer than ranks, fewer than a batch, whole batches, and one more: a rank that has
        no row of a batch still takes part in the step."""
        for count in (0, 1, 2, 5, 11, 12, 13, 24, 25):
            rows = Rows(count)
            one = self.batches(rows, batch_size=12, shuffle=shuffle, epoch=1)
            _once(one, rows, "train", 12)
            for world in self.worlds:
                found = self.batches(rows, world, batch_size=12, shuffle=shuffle, epoch=1)
                assert _equal(found, one), f"{count} rows, {world} ranks"

    @SHUFFLE
    @pytest.mark.parametrize("split", ["validation", "test"])
    def test_each_split_has_its_own_rows(self, rows: Rows, split: str, shuffle: bool) -> None:
        for epoch in (0, 1):
            one = self.batches(rows, split=split, shuffle=shuffle, epoch=epoch)
            _once(one, rows, split, self.batch_size)
            for world in self.worlds:
                found = self.batches(rows, world, split=split, shuffle=shuffle, epoch=epoch)
                assert _equal(found, one), f"{world} ranks"

    # -------------------------------------------------------------- the same batches

    @SHUFFLE
    @pytest.mark.parametrize("batch_size", [48, 7, 50])
    def test_the_same_global_batches_for_any_number_of_ranks(
        self, rows: Rows, batch_size: int, shuffle: bool
    ) -> None:
        for epoch in (0, 3):
            changes = {"batch_size": batch_size, "shuffle": shuffle, "epoch": epoch}
            one = self.batches(rows, **changes)
            for world in self.worlds:
                assert _equal(self.batches(rows, world, **changes), one), f"{world} ranks"

    def test_no_rank_has_most_of_a_batch(self, rows: Rows) -> None:
        for world in self.worlds:
            for batch in zip(*self.shares(rows, world, batch_size=100), strict=True):
                sizes = [len(share) for share in batch]
                assert max(sizes) <= 2 * -(-sum(sizes) // world), f"{sizes} rows of one batch"

    @SHUFFLE
    def test_every_variant_gives_the_same_batches(self, rows: Rows, shuffle: bool) -> None:
        for world, epoch, start in ((1, 0, 0), (1, 2, 3), (2, 1, 0)):
            changes = {"epoch": epoch, "start": start, "shuffle": shuffle}
            reference = self.batches(rows, world, **changes)
            for options in self.variants:
                assert _equal(self.batches(rows, world, options=options, **changes), reference)

    @SHUFFLE
    def test_any_start_goes_on_where_it_says_also_under_other_ranks(
        self, rows: Rows, shuffle: bool
    ) -> None:
        for epoch in (0, 2):
            whole = self.batches(rows, epoch=epoch, shuffle=shuffle)
            for start in range(len(whole) + 1):
                for world in {1, self.worlds[start % len(self.worlds)]}:
                    found = self.batches(rows, world, epoch=epoch, start=start, shuffle=shuffle)
                    assert _equal(found, whole[start:]), f"{world} ranks, from batch {start} on"

    @SHUFFLE
    def test_one_loader_gives_epoch_after_epoch_what_fresh_ones_give(
        self, rows: Rows, shuffle: bool
    ) -> None:
        """In any order, from any start, and after an epoch that was given up."""
        asked = [(0, 0), (1, 0), (2, 0), (3, 0), (1, 0), (2, 5), (3, 8), (0, 2), (0, 0)]
        for rank in (Rank(), Rank(index=1, world=2, local_rank=1)):
            with self.loader(rows, rank, shuffle=shuffle) as loader:
                for epoch, start in asked:
                    found = [rows.checked("train", each) for each in loader.batches(epoch, start)]
                    fresh = self.shares(
                        rows, rank.world, epoch=epoch, start=start, shuffle=shuffle
                    )[rank.index]
                    assert _equal(found, fresh), f"epoch {epoch} from batch {start} on"
                    given_up = iter(loader.batches(epoch))
                    for _ in range(3):
                        rows.checked("train", next(given_up))
                    del given_up

    def test_another_process_gives_the_same_batches(self, rows: Rows) -> None:
        """On another day, on another host and with other hashes: a run goes on there."""
        asked = [(0, 0), (3, 2)]
        given = json.dumps([self.name, dict(self.variants[0]), self.batch_size, asked])
        said = said_elsewhere(CHILD, given=given).rpartition("FOUND")[2]
        found = [
            [batch.tolist() for batch in self.batches(rows, epoch=epoch, start=start)]
            for epoch, start in asked
        ]
        assert json.loads(said) == found, "another process, host or time gives other batches"

    def test_batches_stay_as_they_are(self, rows: Rows) -> None:
        """Whoever keeps those of an epoch has its rows, also once the loader is closed."""
        with self.loader(rows) as loader:
            kept = list(loader.batches(0))
        _once([rows.checked("train", each) for each in kept], rows, "train", self.batch_size)

    def test_random_numbers_of_others_are_neither_used_nor_changed(self, rows: Rows) -> None:
        import torch

        reference = self.batches(rows, epoch=1)
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        before = (random.getstate(), np.random.get_state(), torch.get_rng_state())
        assert _equal(self.batches(rows, epoch=1), reference)
        assert random.getstate() == before[0], "random's state has changed"
        found: Any = np.random.get_state()
        expected: Any = before[1]
        assert found[2:] == expected[2:], "numpy's state has changed"
        assert np.array_equal(found[1], expected[1]), "numpy's state has changed"
        assert torch.equal(torch.get_rng_state(), before[2]), "torch's state has changed"

    # -------------------------------------------------------------- the order

    def test_epochs_and_seeds_differ(self, rows: Rows) -> None:
        """In order, and in which rows meet in a batch."""
        asked = [*((7, epoch) for epoch in (*EPOCHS, 8, 256)), (8, 0), (1000, 0)]
        found = {(seed, epoch): self.batches(rows, seed=seed, epoch=epoch) for seed, epoch in asked}
        orders = {key: np.concatenate(each) for key, each in found.items()}
        for index, (key, order) in enumerate(orders.items()):
            assert _neighbours(order, rows.numbers("train")) < 0.5, f"{key}: nearly in row order"
            for other in list(orders)[:index]:
                assert _neighbours(order, orders[other]) < 0.5, f"{key} repeats {other}"
                together = {frozenset(each.tolist()) for each in found[other]}
                same = [each for each in found[key] if frozenset(each.tolist()) in together]
                assert not same, f"{key} has batches of {other}"

    def test_without_shuffling_rows_come_in_order_cut_evenly(self, rows: Rows) -> None:
        for world in (1, *self.worlds):
            for epoch in (0, 1):
                shares = self.shares(rows, world, shuffle=False, epoch=epoch, batch_size=50)
                batches = [np.concatenate(parts) for parts in zip(*shares, strict=True)]
                assert np.array_equal(np.concatenate(batches), rows.numbers("train"))
                for batch in zip(*shares, strict=True):
                    sizes = [len(share) for share in batch]
                    assert max(sizes) - min(sizes) <= 1, f"{sizes} rows of one batch"

    # -------------------------------------------------------------- parts

    @SHUFFLE
    @pytest.mark.parametrize(("parts", "batch_size"), [(4, 48), (2, 50), (4, 3)])
    def test_parts_have_the_same_rows_for_any_number_of_ranks(
        self, parts: int, batch_size: int, shuffle: bool
    ) -> None:
        if not self.parts:
            pytest.skip("the loader cuts no parts, so exact training refuses it")
        rows = Rows(train=6 * batch_size + 5)
        for epoch, start in ((0, 0), (1, 3)):
            changes = {"batch_size": batch_size, "shuffle": shuffle, "parts": parts}
            one = self.part_rows(rows, 1, epoch, start, **changes)
            joined = [np.concatenate(batch) for batch in one]
            expected = self.batches(
                rows, epoch=epoch, start=start, batch_size=batch_size, shuffle=shuffle
            )
            assert [len(each) for each in joined] == [len(each) for each in expected]
            assert np.array_equal(
                np.sort(np.concatenate(joined)), np.sort(np.concatenate(expected))
            )
            for world in (each for each in self.worlds if each <= parts):
                found = self.part_rows(rows, world, epoch, start, **changes)
                assert len(found) == len(one)
                for a, b in zip(found, one, strict=True):
                    assert _equal(a, b), f"{world} ranks"

    def part_rows(
        self, rows: Rows, world: int, epoch: int, start: int, *, parts: int, **changes: Any
    ) -> list[list[Any]]:
        """The row numbers of each part of each global batch."""
        ranks = []
        for index in range(world):
            rank = Rank(index=index, world=world, local_rank=index)
            mine = (index + 1) * parts // world - index * parts // world
            with self.loader(rows, rank, parts=parts, **changes) as loader:
                batches = [_parts(rows, each) for each in loader.batches(epoch, start)]
            assert all(len(each) == mine for each in batches), f"{rank} has {mine} of the parts"
            ranks.append(batches)
        return [[part for each in batch for part in each] for batch in zip(*ranks, strict=True)]

    # -------------------------------------------------------------- batches, caches, closing

    @SHUFFLE
    def test_the_columns_that_were_asked_for(self, rows: Rows, shuffle: bool) -> None:
        for columns in (["row"], ["words", "row"], ["row", "vector", "x"]):
            with self.loader(rows, columns=columns, shuffle=shuffle) as loader:
                for batch in loader.batches(0):
                    assert sorted(batch) == sorted(columns)
                    rows.checked("train", batch)

    @SHUFFLE
    def test_part_of_a_batch_and_a_batch_elsewhere(self, rows: Rows, shuffle: bool) -> None:
        import torch

        with self.loader(rows, shuffle=shuffle) as loader:
            for batch in loader.batches(1):
                numbers, half = rows.checked("train", batch), batch.rows // 2
                for start, stop in ((0, batch.rows), (half, batch.rows), (1, half), (half, half)):
                    found = rows.checked("train", batch.part(start, stop))
                    assert np.array_equal(found, numbers[start:stop])
                moved = batch.to(torch.device("cpu"))
                assert np.array_equal(rows.checked("train", moved), numbers)

    def test_rows_of_a_cache(self, tmp_path: Path) -> None:
        """As a run has them."""
        from distcore_data.cache import open_cache

        inputs = [{"name": name, "type": kind} for name, kind in _CACHED.items()]
        config = data.config(str(tmp_path), input_features=inputs)
        with open_cache(app().preprocess(config, dataset=data.table(400))) as reader:
            table = reader.read("train", 0, reader.rows("train"))
            expected = sorted(
                zip(*(table.column(name).to_pylist() for name in _CACHED), strict=True)
            )
            for world in (1, 2):
                found: list[Any] = []
                for index in range(world):
                    rank = Rank(index=index, world=world, local_rank=index)
                    with self.loader(reader, rank) as loader:
                        for batch in loader.batches(0):
                            found += zip(*(_listed(batch[name]) for name in _CACHED), strict=True)
                assert sorted(found) == expected

    @SHUFFLE
    def test_closing_leaves_no_thread_no_process_and_no_file(
        self, rows: Rows, tmp_path: Path, shuffle: bool
    ) -> None:
        """Also in the middle of an epoch."""
        before, me = set(threading.enumerate()), os.getpid()
        processes = processes_of(me)
        for options in self.variants:
            with self.loader(
                rows, shuffle=shuffle, options=options, scratch=str(tmp_path)
            ) as loader:
                under_way = iter(loader.batches(0))
                rows.checked("train", next(under_way))
            del under_way
        assert until(lambda: set(threading.enumerate()) <= before, 60), "it leaves threads"
        assert until(lambda: processes_of(me) <= processes, 20), "it leaves processes"
        assert not list(tmp_path.iterdir())


_CACHED = {"z": "number", "colour": "category", "tags": "set", "words": "text"}


def _listed(column: Any) -> Sequence[Any]:
    """The values of each row of a batch's column."""
    if not hasattr(column, "offsets"):
        return list(column.tolist())
    values, offsets = column.values.tolist(), column.offsets.tolist()
    return [values[low:high] for low, high in pairwise(offsets)]


def _parts(rows: Rows, batch: Any) -> list[Any]:
    cuts = np.cumsum(batch.part_rows)
    assert cuts[-1] == batch.rows
    return np.split(rows.checked("train", batch), cuts[:-1])


def _once(found: list[Any], rows: Rows, split: Any, batch_size: int) -> None:
    """Every row of the split once, in batches of the size asked but for the last."""
    expected = rows.numbers(split)
    sizes = [min(batch_size, len(expected) - at) for at in range(0, len(expected), batch_size)]
    assert [len(batch) for batch in found] == sizes
    assert np.array_equal(np.sort(np.concatenate([*found, expected[:0]])), expected)


def _neighbours(order: Any, other: Any) -> float:
    """The share of rows that come after the same row in both orders."""
    pairs = set(pairwise(other.tolist()))
    same = [pair in pairs for pair in pairwise(order.tolist())]
    return sum(same) / max(1, len(same))


def _equal(found: list[Any], expected: list[Any]) -> bool:
    return len(found) == len(expected) and all(
        np.array_equal(a, b) for a, b in zip(found, expected, strict=True)
    )
