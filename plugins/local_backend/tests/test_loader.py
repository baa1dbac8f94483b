"""The packed loader: the sampler's global batches, on any number of ranks, from memory and from
a scratch file."""

import gc
import os
import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_core.contracts import Column, LoadRequest, Rank
from distcore_core.errors import CacheError, ConfigError
from distcore_data.memory import free_bytes
from distcore_local import loader as loader_module
from distcore_local.loader import PackedLoader
from distcore_local.options import LoaderOptions
from distcore_local.prefetch import Prefetch
from distcore_torch import sampler

prove = settings(max_examples=25, deadline=None)
COLUMNS = {
    "words": Column(name="words", dtype="int32", width=None),
    "row": Column(name="row", dtype="int32"),
    "half": Column(name="half", dtype="float32"),
    "pair": Column(name="pair", dtype="int32", width=2),
}
FIXED = ("row", "half", "pair")
EVERY_WORLD = (1, 2, 3, 4, 8, 16)


class TableReader:
    """A `CacheReader` over rows that are a function of their position, counting what is read.

    What is read must have been announced by `expect`, from the first passes on: a bucket's files
    are fetched by it."""

    def __init__(self, rows: int) -> None:
        self.columns = COLUMNS
        self.count = rows
        self.read_rows = 0
        self.fail_at: int | None = None
        self.announced = (0, 0)

    def rows(self, split):
        return self.count

    def expect(self, split, start, stop):
        self.announced = (start, stop)

    def read(self, split, start, stop, columns=None):
        assert "words" in columns or self.announced[0] <= start <= stop <= self.announced[1]
        if self.fail_at is not None and stop > self.fail_at:
            raise CacheError("train/00003.parquet of the cache is damaged. Run preprocess again.")
        self.read_rows += stop - start
        rows = np.arange(start, stop, dtype=np.int32)
        offsets = np.concatenate([[0], np.cumsum(rows % 4)]).astype(np.int32)
        made = {
            "words": pa.ListArray.from_arrays(offsets, pa.array(np.repeat(rows, rows % 4))),
            "row": pa.array(rows),
            "half": pa.array(rows / 2, pa.float32()),
            "pair": pa.FixedSizeListArray.from_arrays(
                pa.array(np.stack([rows, -rows], 1).ravel()), 2
            ),
        }
        return pa.record_batch({name: made[name] for name in columns})


def make(
    reader,
    batch_size,
    *,
    rank=0,
    world=1,
    seed=5,
    shuffle=True,
    columns=FIXED,
    scratch=None,
    **options,
):
    request = LoadRequest(
        reader=reader,
        split="train",
        columns=columns,
        batch_size=batch_size,
        seed=seed,
        rank=Rank(index=rank, world=world),
        shuffle=shuffle,
        scratch=scratch,
    )
    return PackedLoader(
        request, LoaderOptions(**{"window_size_bytes": 30_000, "prefetch": 0} | options)
    )


def window_of(options=None):
    """The window that `make` asks for with the fixed columns: 4 words a row."""
    return sampler.Window.of(30_000, 16, 16)


def positions(loader, epoch=0, start=0):
    return [batch["row"].numpy().copy() for batch in loader.batches(epoch, start)]


def check_columns(batch):
    """The other columns belong to the same rows."""
    rows = batch["row"].numpy()
    np.testing.assert_array_equal(batch["half"].numpy(), rows / np.float32(2))
    np.testing.assert_array_equal(batch["pair"].numpy(), np.stack([rows, -rows], 1))
    if "words" in batch:
        words = batch["words"]
        np.testing.assert_array_equal(
            words.offsets.numpy(), np.concatenate([[0], np.cumsum(rows % 4)])
        )
        np.testing.assert_array_equal(words.values.numpy(), np.repeat(rows, rows % 4))


@prove
@given(
    st.one_of(st.sampled_from([0, 1, 5, 16, 17, 1000]), st.integers(0, 4000)),
    st.one_of(st.sampled_from([1, 7, 128]), st.integers(1, 700)),
    st.sampled_from(EVERY_WORLD),
    st.booleans(),
    st.data(),
)
def test_ranks_side_by_side_are_the_reference(rows, batch_size, world, memory, data):
    """Any rows, batch size, ranks and start; from memory and from the file; whatever the size of
    a piece."""
    steps = sampler.Lanes(rows, 1).steps(batch_size)
    start = data.draw(st.integers(0, steps))
    reader, parts = TableReader(rows), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader_module, "PIECE_BYTES", data.draw(st.sampled_from([1, 3000, 1 << 20])))
        for rank in range(world):
            loader = make(reader, batch_size, rank=rank, world=world, fully_executed=memory)
            parts.append(positions(loader, 3, start))
            loader.close()
    assert {len(part) for part in parts} == {steps - start}
    for step in {start, (start + steps) // 2, steps - 1} & set(range(start, steps)):
        found = np.concatenate([part[step - start] for part in parts])
        expected = sampler.global_batch(rows, 16, batch_size, 5, 3, step, window_of())
        np.testing.assert_array_equal(found, expected)
    if start == 0:
        everything = [row for part in parts for batch in part for row in batch.tolist()]
        assert sorted(everything) == list(range(rows))


@pytest.mark.parametrize("world", EVERY_WORLD)
def test_resuming_under_another_number_of_ranks(world):
    """(epoch, step) is all: whoever goes on at step 9 gets batches 9, 10, … of one rank."""
    reader = TableReader(2000)
    alone = positions(make(reader, 100), 1, 9)
    parts = [positions(make(reader, 100, rank=rank, world=world), 1, 9) for rank in range(world)]
    for step, batch in enumerate(alone):
        np.testing.assert_array_equal(np.concatenate([part[step] for part in parts]), batch)


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize(("rows", "batch_size"), [(3, 2), (1000, 64), (1001, 48)])
def test_every_column_follows_its_row(memory, world, rows, batch_size, tmp_path):
    reader, seen = TableReader(rows), 0
    for rank in range(world):
        loader = make(
            reader,
            batch_size,
            rank=rank,
            world=world,
            columns=tuple(COLUMNS),
            fully_executed=memory,
            scratch=str(tmp_path),
            window_size_bytes=9000,
        )
        for batch in loader.batches(0):
            check_columns(batch)
            seen += batch.rows
        loader.close()
    assert seen == rows


def test_ragged_batches_are_the_same_for_any_number_of_ranks():
    """The window follows from the mean length of the first rows of the split, not of a rank's
    own."""
    reader = TableReader(3000)
    columns = tuple(COLUMNS)
    alone = positions(make(reader, 100, columns=columns))
    parts = [
        positions(make(reader, 100, rank=rank, world=4, columns=columns, fully_executed=False))
        for rank in range(4)
    ]
    for step, batch in enumerate(alone):
        np.testing.assert_array_equal(np.concatenate([part[step] for part in parts]), batch)


def test_epochs_and_seeds_differ():
    reader = TableReader(500)
    first = np.concatenate(positions(make(reader, 50), 0))
    assert (first == np.concatenate(positions(make(reader, 50), 1))).mean() < 0.2
    assert (first == np.concatenate(positions(make(reader, 50, seed=6), 0))).mean() < 0.2


def test_one_loader_gives_several_epochs_at_once():
    """Buffers are used again by the next epoch, never by two; an epoch given up in its middle
    changes nothing."""
    reader = TableReader(4000)
    loader = make(reader, 64)
    expected = [positions(make(reader, 64), epoch) for epoch in (0, 1)]
    given_up = loader.batches(2)
    next(given_up)
    given_up.close()
    both = zip(loader.batches(0), loader.batches(1), strict=True)
    for step, pair in enumerate(both):
        for epoch, batch in enumerate(pair):
            np.testing.assert_array_equal(batch["row"].numpy(), expected[epoch][step])


def test_batches_stay_as_they_are():
    """Memory handed out is not filled again while somebody holds it."""
    kept = list(make(TableReader(5000), 64, prefetch=1).batches(0))
    assert sorted(np.concatenate([batch["row"].numpy() for batch in kept]).tolist()) == list(
        range(5000)
    )


def test_quality_of_the_shuffle():
    """Standard deviation of positions within a batch, against that of a uniform draw."""
    rows = 60_000
    found = positions(make(TableReader(rows), 512, window_size_bytes=200_000))
    quality = np.mean([batch.std() for batch in found[:-1]]) / rows * np.sqrt(12)
    assert quality >= 0.99


# ------------------------------------------------------------------ in order


@pytest.mark.parametrize("memory", [True, False, "auto"])
@pytest.mark.parametrize("world", [1, 3, 4])
@pytest.mark.parametrize(("rows", "batch_size"), [(0, 7), (1, 7), (30, 1), (1001, 128), (50, 64)])
def test_in_order(memory, world, rows, batch_size):
    """Ranks side by side are the rows in order, on the first pass and on the next; `start` says
    where each lies."""
    reader = TableReader(rows)
    loaders = [
        make(
            reader,
            batch_size,
            rank=rank,
            world=world,
            shuffle=False,
            columns=tuple(COLUMNS),
            fully_executed=memory,
        )
        for rank in range(world)
    ]
    for _ in range(2):
        parts = [list(loader.batches(0)) for loader in loaders]
        assert {len(part) for part in parts} == {sampler.Lanes(rows, 1).steps(batch_size)}
        in_order = [batch for step in zip(*parts, strict=True) for batch in step]
        assert [row for batch in in_order for row in batch["row"].tolist()] == list(range(rows))
        for batch in in_order:
            check_columns(batch)
            assert batch["row"].tolist() == list(range(batch.start, batch.start + batch.rows))


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("start", [0, 1, 5, 16])
def test_in_order_from_any_step(memory, start):
    loader = make(
        TableReader(1000), 64, shuffle=False, fully_executed=memory, window_size_bytes=16_384
    )
    for _ in range(2):
        batches = list(loader.batches(0, start))
        assert [row for batch in batches for row in batch["row"].tolist()] == list(
            range(start * 64, 1000)
        )
        assert [batch.start for batch in batches] == list(range(start * 64, 1000, 64))


def test_in_order_keeps_what_will_be_read_again():
    reader = TableReader(1000)
    loader = make(reader, 64, shuffle=False)
    passes = []
    for _ in range(3):
        positions(loader)
        passes.append(reader.read_rows)
    assert passes == [
        1000,
        2000,
        2000,
    ]  # prediction passes once and keeps nothing; evaluation comes again


def test_a_model_that_changes_its_batch_in_place_changes_nothing_else():
    loader = make(TableReader(100), 10, shuffle=False, fully_executed=True)
    for _ in range(2):
        for batch in loader.batches(0):
            assert batch["row"].tolist() == list(range(batch.start, batch.start + 10))
            batch["row"].zero_()


# ------------------------------------------------------------------ memory, threads, errors


def test_memory_is_bounded_by_the_window():
    """From a scratch file: one window over all lanes, one lane's window as read, and a few
    pieces."""
    reader, window = TableReader(200_000), 400_000
    loader = make(reader, 128, fully_executed=False, window_size_bytes=window)
    next(loader.batches(0))
    buffers = loader._buffers
    assert buffers.lanes.nbytes + buffers.laid.nbytes <= 1.5 * window
    loader.close()


def test_a_rank_reads_only_its_lanes():
    reader = TableReader(1600)
    positions(make(reader, 100, rank=1, world=4))
    assert reader.read_rows == 400


def ours(before=frozenset()):
    """The threads that make batches ahead, but for those before: what an earlier test left running
    may end at any moment."""
    found = {each for each in threading.enumerate() if each.name == "distcore-prefetch"}
    return found - before


@pytest.mark.parametrize("memory", [True, False])
def test_threads_and_files_end_with_the_consumer(memory, tmp_path):
    """Taken to the end, given up after a batch, closed, or dropped: nothing stays."""
    gc.collect()  # what other tests dropped must not be closed in the middle of this one
    files, threads = set(os.listdir("/proc/self/fd")), ours()
    for give_up in ("end", "close", "drop", "loader"):
        loader = make(
            TableReader(5000), 32, fully_executed=memory, prefetch=2, scratch=str(tmp_path)
        )
        batches = loader.batches(0)
        next(batches)
        assert len(ours(threads)) == 1
        if give_up == "end":
            assert sum(batch.rows for batch in batches) == 5000 - 32
        elif give_up == "close":
            batches.close()
        elif give_up == "drop":
            del batches
            gc.collect()
        loader.close()
        assert not ours(threads)
        assert set(os.listdir("/proc/self/fd")) == files
        assert os.listdir(tmp_path) == []


def test_a_closed_loader_packs_again():
    reader = TableReader(100)
    loader = make(reader, 10)
    first = positions(loader)
    loader.close()
    assert all(map(np.array_equal, first, positions(loader)))


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_errors_reach_the_consumer(shuffle, prefetch):
    reader = TableReader(1000)
    reader.fail_at = 500
    loader = make(reader, 10, shuffle=shuffle, prefetch=prefetch, window_size_bytes=2000)
    threads = ours()
    with pytest.raises(CacheError, match=r"train/00003\.parquet"):
        list(loader.batches(0))
    assert not ours(threads)


def test_prefetch_gives_what_came_before_the_error_and_stays_ahead_no_further_than_asked():
    made = []

    def items():
        for each in range(10):
            if each == 7:
                raise ValueError("the eighth")
            made.append(each)
            yield each

    prefetch = Prefetch(items(), 2)
    deadline = time.monotonic() + 10
    while len(made) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.01)
    assert made == [0, 1]
    found = []
    with pytest.raises(ValueError, match="the eighth"):
        found.extend(prefetch)
    assert found == list(range(7))
    assert list(prefetch) == []


def test_more_workers_than_lanes():
    with pytest.raises(ConfigError, match=r"backend\.loader\.lanes"):
        make(TableReader(10), 2, rank=0, world=5, lanes=4)


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_batch_beyond_all_bounds_takes_the_memory_of_the_rows_that_are_there(shuffle):
    reader = TableReader(100)
    whole = make(reader, 100, shuffle=shuffle)
    beyond = make(reader, 10**20, shuffle=shuffle)
    assert beyond.steps == 1
    assert [each.tolist() for each in positions(beyond)] == [
        each.tolist() for each in positions(whole)
    ]


def test_a_column_that_is_not_in_the_cache():
    with pytest.raises(CacheError, match="no column 'age'; it has words, row"):
        make(TableReader(10), 2, columns=("row", "age"))


def test_auto_holds_in_memory_what_fits():
    assert free_bytes() > 0
    assert make(TableReader(100), 10)._fits_memory()
    assert not make(TableReader(free_bytes() // 16), 10)._fits_memory()


@pytest.mark.parametrize(
    "options",
    [{"lanes": 3}, {"lanes": 1 << 17}, {"prefetch": -1}, {"window_size_bytes": 0}, {"windows": 1}],
)
def test_options_that_are_wrong(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        LoaderOptions(**options)
