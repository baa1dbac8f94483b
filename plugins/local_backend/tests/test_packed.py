"""A rank's rows in memory and in a scratch file are the same rows, and the file leaves nothing
behind."""

import errno
import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_core.contracts import Column
from distcore_core.errors import CacheError
from distcore_local.packed import FileStore, Lists, MemoryStore
from distcore_testing.counting import descriptors
from distcore_torch.batch import Layout

prove = settings(max_examples=40, deadline=None)
LAYOUT = Layout.of(
    [
        Column(name="number", dtype="float32"),
        Column(name="words", dtype="int32", width=None),
        Column(name="pair", dtype="int32", width=2),
        Column(name="tags", dtype="int32", width=None),
    ]
)
ragged_rows = st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=30)


def encoded(start: int, stop: int) -> pa.RecordBatch:
    rows = np.arange(start, stop)
    return pa.record_batch(
        {
            "number": pa.array(rows / 4, pa.float32()),
            "words": pa.array(
                [list(range(row, row + row % 4)) for row in rows.tolist()], pa.list_(pa.int32())
            ),
            "pair": pa.FixedSizeListArray.from_arrays(
                pa.array(np.stack([rows, -rows], 1).ravel(), pa.int32()), 2
            ),
            "tags": pa.array([[row] * (row % 3) for row in rows.tolist()], pa.list_(pa.int32())),
        }
    )


def filled(store):
    for start, stop in ((0, 100), (100, 101), (101, 20_000)):
        store.append(encoded(start, stop))
    store.finish()
    return store


def lists(rows) -> Lists:
    offsets = np.cumsum([0, *map(len, rows)])
    return Lists(np.array([each for row in rows for each in row], np.int32), offsets)


def rows_of(column: Lists):
    return [
        column.values[a:b].tolist()
        for a, b in zip(column.offsets[:-1], column.offsets[1:], strict=True)
    ]


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    made = filled(
        MemoryStore(20_000, LAYOUT)
        if request.param == "memory"
        else FileStore(LAYOUT, str(tmp_path))
    )
    yield made
    made.close()


def test_ranges_are_laid_down_one_after_the_other(store):
    ranges = [(19_000, 19_500), (98, 103), (7, 7), (0, 1)]
    out = np.full((600, store.width), -7, store.dtype)
    beside = store.read(ranges, out)
    assert set(beside) == set(store.beside)
    rows = np.concatenate([np.arange(*each) for each in ranges])
    assert (out[len(rows) :] == -7).all()
    matrix, found = store.whole(out[: len(rows)], beside)
    assert matrix[:, 0].copy().view(np.float32).tolist() == (rows / 4).tolist()
    assert matrix[:, 1:].tolist() == np.stack([rows, -rows], 1).tolist()
    assert rows_of(found["words"]) == [list(range(row, row + row % 4)) for row in rows.tolist()]
    assert rows_of(found["tags"]) == [[row] * (row % 3) for row in rows.tolist()]


def test_no_ranges(store):
    nothing = np.empty((0, store.width), store.dtype)
    _, found = store.whole(nothing, store.read([], nothing))
    assert rows_of(found["words"]) == []


def test_lists_without_a_value_are_written_and_read(tmp_path):
    store = FileStore(LAYOUT, str(tmp_path))
    store.append(encoded(0, 1))
    store.append(encoded(0, 0))
    found = store.read([(0, 1)], np.empty((1, 3), np.int32))
    assert rows_of(found["words"]) == rows_of(found["tags"]) == [[]]
    store.close()


def test_the_kernel_is_told_which_bytes_are_read_next(tmp_path, monkeypatch):
    """A thread tells it, where an error is nobody's answer: reading would be slow, and no more."""
    store, asked = filled(FileStore(LAYOUT, str(tmp_path))), []
    monkeypatch.setattr(os, "posix_fadvise", lambda *what: asked.append(what))
    store.expect([(50, 150), (7, 8)])
    store._asking.shutdown()
    of, why = store._matrix.fileno(), os.POSIX_FADV_WILLNEED
    assert asked == [(of, 50 * 12, 100 * 12, why), (of, 7 * 12, 12, why)]
    store.close()


def test_the_scratch_file_has_no_name(tmp_path):
    """Killed at any moment, the process leaves nothing: the space goes with its last file
    descriptor."""
    before = descriptors()
    store = filled(FileStore(LAYOUT, str(tmp_path / "made" / "when needed")))
    assert list((tmp_path / "made" / "when needed").iterdir()) == []
    store.close()
    assert descriptors() == before


def test_a_scratch_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        CacheError, match=r"scratch file in .*file.* cannot be written.*fully_executed: true"
    ):
        FileStore(LAYOUT, str(tmp_path / "file" / "folder"))


def test_a_full_disk_names_the_folder(tmp_path):
    """/dev/full answers every write with ENOSPC, as a full disk does."""
    store = FileStore(LAYOUT, str(tmp_path))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, store._matrix.fileno())
    os.close(full)
    with pytest.raises(
        CacheError, match=r"cannot be written: No space left on device.*Make room"
    ) as caught:
        store.append(encoded(0, 10))
    assert caught.value.__cause__.errno == errno.ENOSPC
    store.close()


def test_a_scratch_file_that_was_cut(tmp_path):
    store = filled(FileStore(LAYOUT, str(tmp_path)))
    os.ftruncate(store._matrix.fileno(), 12 * 100)
    with pytest.raises(CacheError, match="ended early"):
        store.read([(50, 150)], np.empty((100, 3), np.int32))
    store.close()


@prove
@given(ragged_rows, st.data())
def test_lists_take_and_slice(rows, data):
    index = data.draw(st.lists(st.integers(0, max(0, len(rows) - 1)), max_size=20 if rows else 0))
    column = lists(rows)
    assert rows_of(column.take(np.array(index, np.int64))) == [rows[each] for each in index]
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    assert rows_of(column.slice(start, stop)) == rows[start:stop]


@prove
@given(st.lists(ragged_rows, max_size=4))
def test_lists_join(parts):
    assert rows_of(Lists.join(lists(part) for part in parts)) == [
        row for part in parts for row in part
    ]
