"""The local processor: each partition read once, slices by row number, errors in row order,
nothing left behind."""

import threading
import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcore_core.contracts import Processor, ShardPlan
from distcore_data.threads import run_all, spread
from distcore_local.options import ProcessorOptions
from distcore_local.processor import LocalProcessor, _Merged


class Rows:
    """A source of numbered rows, cut as told; counts its reads."""

    def __init__(self, lengths, fails=()):
        self.lengths, self.fails = lengths, fails
        self.reads = []
        self.asked = []

    def partitions(self, target_bytes):
        self.asked.append(target_bytes)
        starts = [sum(self.lengths[:index]) for index in range(len(self.lengths))]
        return [
            Part(self, index, start, length)
            for index, (start, length) in enumerate(zip(starts, self.lengths, strict=True))
        ]


class Tiles(Rows):
    """The same, with each column by itself."""

    def tiles(self, target_bytes):
        return [
            [Tile(part, number, name) for number, name in enumerate(("row", "name"))]
            for part in self.partitions(target_bytes)
        ]


class Tile:
    def __init__(self, part, number, name):
        self.part, self.number, self.name = part, number, name

    def read(self):
        if (self.part.index, self.number) in self.part.source.fails:
            time.sleep(0.02 * (5 - self.part.index))  # the later ones fail sooner
            raise ValueError(f"tile {self.part.index} {self.name}")
        return self.part.read().select([self.name])


class Part:
    def __init__(self, source, index, start, length):
        self.source, self.index, self.start, self.length = source, index, start, length

    def read(self):
        self.source.reads.append(self.index)
        if self.index in self.source.fails:
            time.sleep(0.02 * (5 - self.index))  # the later ones fail sooner
            raise ValueError(f"partition {self.index}")
        rows = list(range(self.start, self.start + self.length))
        return pa.record_batch(
            {"row": rows, "name": pa.array([str(row % 7) for row in rows]).dictionary_encode()}
        )


def processor(threads=3):
    return LocalProcessor(ProcessorOptions(parallelism=threads))


def rows_of(block):
    return block.table.column("row").to_pylist() if "row" in block.table.schema.names else []


@given(
    st.sampled_from([Rows, Tiles]),
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.integers(1, 20),
    st.integers(1, 4),
)
def test_every_row_is_read_once_and_comes_back_in_its_shard(kind, lengths, shard, threads):
    source, total = kind(lengths), sum(lengths)
    made = processor(threads)
    try:
        assert made.scan(source) == len(lengths)
        rows, counts = made.fold(rows_of, lambda left, right: left + right)
        assert sorted(rows) == list(range(total))
        assert counts == lengths
        columns = 2 if kind is Tiles else 1
        assert sorted(source.reads) == sorted(list(range(len(lengths))) * columns)
        plans = [
            ShardPlan(index=index, start=start, stop=min(start + shard, total))
            for index, start in enumerate(range(0, total, shard))
        ]

        def look(plan, blocks):
            found = [row for block in blocks for row in block.table.column("row").to_pylist()]
            names = [name for block in blocks for name in block.table.column("name").to_pylist()]
            assert [block.table.column("row")[0].as_py() for block in blocks] == [
                block.start for block in blocks
            ]
            assert found == list(range(plan.start, plan.stop))
            assert names == [str(row % 7) for row in found]
            return plan.index

        for _ in range(2):  # a survey and the shards
            assert made.write_shards(plans, look) == list(range(len(plans)))
    finally:
        made.close()


def test_rows_are_kept_in_the_scratch_folder_and_gone_after_close(tmp_path):
    made = processor()
    made.scan(Rows([5, 5]), tmp_path)
    made.fold(lambda block: 0, lambda left, right: left)
    assert len(list(tmp_path.rglob("*.arrow"))) == 2
    made.close()
    made.close()
    assert list(tmp_path.iterdir()) == []
    assert isinstance(made, Processor)


def test_a_second_scan_forgets_the_first(tmp_path):
    made = processor()
    for lengths in ([3, 3], [4]):
        made.scan(Rows(lengths), tmp_path)
        _, counts = made.fold(lambda block: 0, lambda left, right: left)
        assert counts == lengths
    assert len(list(tmp_path.iterdir())) == 1
    made.close()


def test_few_partitions_are_cut_smaller_so_that_every_thread_has_some(tmp_path):
    source = Rows([1, 1])
    processor(4).scan(source, tmp_path)
    assert source.asked == [16 << 20, 2 << 20]
    for count, asked in ((16, [16 << 20]), (17, [16 << 20, (16 << 20) * 17 // 20])):
        many = Rows([1] * count)
        processor(4).scan(many, tmp_path)
        assert many.asked == asked


def test_the_error_of_the_first_row_in_order_is_raised_and_nothing_more_is_read(tmp_path):
    source = Rows([1] * 2000, fails=(2, 3, 4))
    made = processor(4)
    made.scan(source, tmp_path)
    with pytest.raises(ValueError, match="partition 2"):
        made.fold(lambda block: 0, lambda left, right: left)
    assert len(source.reads) < 2000
    made.close()
    assert list(tmp_path.iterdir()) == []


def test_of_tiles_that_fail_the_first_in_rows_and_then_in_columns_is_told(tmp_path):
    made = processor(4)
    made.scan(Tiles([1] * 20, fails={(2, 1), (3, 0), (4, 0)}), tmp_path)
    with pytest.raises(ValueError, match="tile 2 name"):
        made.fold(lambda block: 0, lambda left, right: left)
    made.close()


def test_columns_of_different_tiles_are_merged_once_at_the_end():
    seen = []

    def merge(left, right):
        seen.append((left[0], right[0]))
        return left[0] | right[0], left[1] + right[1]

    made = processor(threads=1)
    made.scan(Tiles([5] * 8))
    columns, rows = made.fold(
        lambda block: (frozenset(block.table.schema.names), block.table.num_rows), merge
    )[0]
    made.close()
    assert (columns, rows) == ({"row", "name"}, 2 * 5 * 8)
    assert [left == right for left, right in seen] == [True] * 14 + [False]


def test_a_source_without_partitions_is_refused():
    made = processor()
    made.scan(Rows([]))
    with pytest.raises(ValueError, match="nothing was folded"):
        made.fold(lambda block: 0, lambda left, right: left)
    made.close()


def test_run_all_keeps_the_order_and_uses_the_threads():
    seen = set()
    both = threading.Barrier(2, timeout=600)

    def double(number):
        if number < 2:
            both.wait()  # passes only when two threads are here
        seen.add(threading.get_ident())
        return 2 * number

    assert run_all(double, range(50), 2) == list(range(0, 100, 2))
    assert len(seen) == 2
    assert run_all(double, [], 3) == []


def test_threads_that_few_plans_leave_idle_share_the_work_of_a_shard():
    both = threading.Barrier(2, timeout=600)

    def write(plan, blocks):
        def column(number):
            if len(plans) == 1:
                both.wait()  # passes only when two threads are here
            return threading.get_ident()

        return threading.get_ident(), spread(column, range(2))

    made = processor(threads=2)
    made.scan(Rows([5, 5]))
    made.fold(lambda block: 0, lambda left, right: left)
    plans = [ShardPlan(index=0, start=0, stop=10)]
    [(_, columns)] = made.write_shards(plans, write)
    assert len(set(columns)) == 2
    plans = [ShardPlan(index=0, start=0, stop=5), ShardPlan(index=1, start=5, stop=10)]
    for own, columns in made.write_shards(plans, write):
        assert columns == [own, own]
    made.close()


def test_an_interrupt_waits_for_what_is_under_way_and_begins_nothing_more():
    begun, finished = [], []

    def slow(number):
        begun.append(number)
        if number == 1:
            raise KeyboardInterrupt
        time.sleep(0.05)
        finished.append(number)

    with pytest.raises(KeyboardInterrupt):
        run_all(slow, range(1000), 2)
    assert len(begun) < 10
    assert len(finished) == len(begun) - 1


def test_merging_keeps_every_value_whoever_adds():
    merged = _Merged(lambda left, right: left + right)
    run_all(lambda number: merged.add(number), range(500), 4)
    assert merged.value() == sum(range(500))
