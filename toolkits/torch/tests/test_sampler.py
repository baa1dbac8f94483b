"""The laws of the sampler: which row is in which global batch."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_core.contracts import Rank
from distcore_core.errors import ConfigError
from distcore_torch.sampler import (
    BLOCK_BYTES,
    LaneOrder,
    Lanes,
    Window,
    boundaries,
    epoch_order,
    global_batch,
    owned,
    permutation,
)

PERMUTATION = [8, 0, 3, 4, 5, 7, 1, 9, 2, 6]
ORDER = "48657b42e28b11074eb308467340c100d20cd0e15b4cb238069b34774a7ffdb2"

SMALL = Window(16, 3)
prove = settings(max_examples=40, deadline=None)
rows_of = st.one_of(st.sampled_from([0, 1, 5, 16, 17, 1000]), st.integers(0, 3000))
batch_sizes = st.one_of(st.sampled_from([1, 7, 128]), st.integers(1, 600))
lanes_of = st.sampled_from([1, 2, 4, 8, 16])


def test_the_random_bits_are_the_published_ones():
    """Philox4x64-10's known answers (Random123's kat_vectors); numpy steps the counter before
    the first output."""
    stream = np.random.Philox(key=np.zeros(2, np.uint64), counter=[(1 << 64) - 1] * 4)
    expected = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    assert stream.random_raw(4).tolist() == expected


def test_the_order_is_the_same_on_every_machine_and_version():
    """A change of these digests changes the batches of every run there ever was: checkpoints
    would not go on alike."""
    assert permutation(10, seed=42, epoch=3, lane=2, window=1, purpose=2).tolist() == PERMUTATION
    order = epoch_order(100_000, lane=3, seed=-7, epoch=5, window=Window(1024, 8))
    assert hashlib.sha256(order.astype("<i8").tobytes()).hexdigest() == ORDER


@prove
@given(rows_of, st.integers(1, 40))
def test_boundaries_share_out_evenly(things, parts):
    cuts = boundaries(things, parts)
    sizes = np.diff(cuts)
    assert cuts[0] == 0
    assert cuts[-1] == things
    assert sizes.max() - sizes.min() <= 1


@prove
@given(rows_of, lanes_of, batch_sizes)
def test_every_batch_is_full_but_the_last(rows, lanes, batch_size):
    dealt = Lanes(rows, lanes)
    count = dealt.steps(batch_size)
    sizes = np.diff(dealt.taken(0, count, batch_size).sum(axis=1)).tolist()
    assert sizes == [dealt.batch_rows(step, batch_size) for step in range(count)]
    assert sizes[:-1] == [batch_size] * max(0, count - 1)
    assert sum(sizes) == rows
    assert dealt.batch_rows(count, batch_size) == 0


@prove
@given(rows_of, lanes_of, batch_sizes)
def test_lanes_give_equally_and_end_together(rows, lanes, batch_size):
    dealt = Lanes(rows, lanes)
    taken = dealt.taken(0, dealt.steps(batch_size), batch_size)
    assert (np.diff(taken, axis=0) >= 0).all()
    assert (taken.max(1) - taken.min(1) <= 1).all()
    np.testing.assert_array_equal(taken[-1], np.diff(dealt.starts))


@prove
@given(
    rows_of.filter(lambda rows: rows < 1500), lanes_of, batch_sizes.filter(lambda size: size > 50)
)
def test_an_epoch_has_every_row_exactly_once(rows, lanes, batch_size):
    parts = [
        global_batch(rows, lanes, batch_size, 1, 2, step, SMALL)
        for step in range(Lanes(rows, lanes).steps(batch_size))
    ]
    assert sorted(np.concatenate([np.zeros(0, int), *parts]).tolist()) == list(range(rows))


@prove
@given(st.integers(0, 2000), st.integers(0, 3), st.integers(3, 40), st.integers(1, 6))
def test_a_lane_is_shuffled_within_its_windows(rows, epoch, block_rows, blocks):
    order = LaneOrder(rows, 1, 9, epoch, Window(block_rows, blocks))
    whole = epoch_order(rows, 1, 9, epoch, Window(block_rows, blocks))
    assert order.window_starts[-1] == rows
    for window in range(order.windows):
        start, stop = order.window_starts[window : window + 2]
        laid = np.concatenate([np.arange(*block) for block in order.blocks(window)])
        assert 0 < len(laid) <= block_rows * blocks
        assert sorted(whole[start:stop]) == sorted(laid)
        assert order.window_at(start) == order.window_at(stop - 1) == window


def test_windows_are_even():
    """No window is a small rest: its rows would be shuffled among few."""
    sizes = np.diff(LaneOrder(100_001, 0, 1, 0, Window(1000, 10)).window_starts)
    assert sizes.min() > 0.8 * sizes.max()


@pytest.mark.parametrize(("changed", "value"), [("seed", 8), ("epoch", 4), ("lane", 2)])
def test_orders_differ_between_seeds_epochs_and_lanes(changed, value):
    key = {"seed": 7, "epoch": 3, "lane": 1}
    order = epoch_order(1000, window=SMALL, **key)
    other = epoch_order(1000, window=SMALL, **{**key, changed: value})
    assert (order == other).mean() < 0.05


def test_windows_of_a_lane_are_shuffled_differently():
    order = LaneOrder(160, 0, 7, 0, Window(16, 1))
    assert (
        len({tuple(order.rows(window).tolist()) for window in range(order.windows)})
        == order.windows
    )


def test_permutations_are_uniform():
    """Every row is as likely at every place: chi-squared of 24 orders of 4 things over 9,600
    windows."""
    seen = [tuple(permutation(4, 1, 0, 0, window, 2).tolist()) for window in range(9_600)]
    counts = np.unique(np.array(seen), axis=0, return_counts=True)[1]
    assert len(counts) == 24
    assert ((counts - 400) ** 2 / 400).sum() < 60  # 23 degrees of freedom: p < 5e-5


def test_quality_of_the_shuffle():
    """Mean standard deviation of positions within a batch, against that of a uniform draw, in
    lanes and in a lane."""
    rows, lanes, size = 262_144, 16, 1024
    window = Window.of(8 << 20, 68, lanes)
    within = [
        global_batch(rows, lanes, size, 0, 0, step, window).std() / rows * np.sqrt(12)
        for step in range(0, 256, 64)
    ]
    assert np.mean(within) >= 0.99
    order = epoch_order(rows, 0, 0, 0, Window(1024, 8))
    spread = order[: rows - rows % 1024].reshape(-1, 1024).std(1).mean() / rows * np.sqrt(12)
    assert spread > 0.85  # eight blocks of a lane at a time


@prove
@given(st.integers(1, 1 << 31), st.integers(1, 1 << 16), lanes_of)
def test_the_window_is_bounded_by_its_bytes(window_bytes, row_bytes, lanes):
    window = Window.of(window_bytes, row_bytes, lanes)
    assert window.rows * row_bytes * lanes <= max(window_bytes, row_bytes * lanes)
    assert 1 <= window.block_rows <= max(1, BLOCK_BYTES // row_bytes)
    assert window.rows * 2 > window_bytes // (row_bytes * lanes)


@prove
@given(st.integers(1, 16))
def test_every_lane_has_one_owner(world):
    ranks = [owned(Rank(index=rank, world=world), 16) for rank in range(world)]
    assert [lane for rank in ranks for lane in rank] == list(range(16))
    assert max(map(len, ranks)) - min(map(len, ranks)) <= 1


def test_more_workers_than_lanes():
    with pytest.raises(
        ConfigError, match=r"backend\.loader\.lanes: 16 lanes .* 17 workers; set it to 32 or more"
    ):
        owned(Rank(index=0, world=17), 16)


def test_lanes_are_a_power_of_two():
    with pytest.raises(ValueError, match="power of two"):
        Lanes(10, 3)


def test_imports_neither_torch_nor_arrow():
    code = (
        "import sys, distcore_torch.sampler; print([m for m in ('torch', 'pyarrow', 'pandas') if m "
        "in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
        == "[]"
    )


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_ranks_that_own_whole_parts_own_every_lane_once(world, lanes):
    parts = 4
    ranks = [owned(Rank(index=rank, world=world), lanes, parts) for rank in range(world)]
    assert [lane for rank in ranks for lane in rank] == list(range(lanes))
    assert all(lane * parts % lanes == 0 for rank in ranks for lane in (rank.start, rank.stop))
