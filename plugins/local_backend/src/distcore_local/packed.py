"""Packed rows of one rank, in memory or in a scratch file: the 32-bit matrix, and ragged columns
beside it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from distcore_core.errors import CacheError
from distcore_data.temporaries import system_folder, unnamed_file
from distcore_torch.gather import take_lists, take_rows
from distcore_torch.packing import pack_into, ragged_of

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import DTypeLike, NDArray

    from distcore_torch.batch import Layout

SLICE_ROWS = 8192
"""Rows packed at once: a slice of the matrix that stays in the processor's cache while its
columns are filled in."""

Ranges = Sequence[tuple[int, int]]


class Lists(NamedTuple):
    """A ragged column: row i holds values[offsets[i]:offsets[i + 1]]. values: int32; offsets:
    int64 [n + 1], from 0."""

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def slice(self, start: int, stop: int) -> Lists:
        first, last = self.offsets[start], self.offsets[stop]
        return Lists(self.values[first:last], self.offsets[start : stop + 1] - first)

    def take(self, rows: NDArray[np.int64]) -> Lists:
        """These rows, in this order."""
        return Lists(*take_lists(self.values, self.offsets, rows))

    @staticmethod
    def join(parts: Iterable[Lists]) -> Lists:
        """The rows of all parts, one part after the other."""
        parts = list(parts)
        ends = np.cumsum([0, *(part.offsets[-1] for part in parts)])
        offsets = [part.offsets[1:] + end for part, end in zip(parts, ends, strict=False)]
        values = [part.values for part in parts]
        return Lists(
            np.concatenate([np.zeros(0, np.int32), *values]),
            np.concatenate([np.zeros(1, np.int64), *offsets]),
        )


class Store(Protocol):
    """A rank's rows, appended in order once, then read by ranges, from any thread.

    What goes through the windows for a row is the store's choice, the row itself or where it lies:
    `width` numbers of `dtype`, and beside them the ragged columns `beside`."""

    width: int
    dtype: DTypeLike
    beside: tuple[str, ...]

    def append(self, encoded: pa.RecordBatch) -> None: ...

    def finish(self) -> None:
        """Nothing more will be appended."""
        ...

    def read(self, ranges: Ranges, out: NDArray[Any]) -> Mapping[str, Lists]:
        """Lay what goes through the windows for the ranges' rows, one after the other, into `out`
        [their sum or more, width]; returns the ragged columns beside it."""
        ...

    def whole(
        self, found: NDArray[Any], lists: dict[str, Lists]
    ) -> tuple[NDArray[np.int32], dict[str, Lists]]:
        """Rows, int32 [n, W] and their ragged columns, of what came through the windows, [n, width]
        and the ragged columns beside it."""
        ...

    def expect(self, ranges: Ranges) -> None:
        """These ranges are to be read next; a store may begin to fetch them."""
        ...

    def close(self) -> None: ...


class MemoryStore:
    """Rows held in memory. matrix: int32 [rows, W]; lists: the ragged columns, once finished.

    Where rows lie goes through the windows, so each row is copied once, into its piece."""

    width: int = 1
    dtype: DTypeLike = np.int64
    beside: tuple[str, ...] = ()

    def __init__(self, rows: int, layout: Layout) -> None:
        self.matrix = np.empty((rows, layout.words), np.int32)
        self.lists: dict[str, Lists] = {}
        self._layout = layout
        self._filled = 0
        self._parts: dict[str, list[Lists]] = {name: [] for name in layout.ragged}

    def append(self, encoded: pa.RecordBatch) -> None:
        stop = self._filled + encoded.num_rows
        pack_rows(self.matrix[self._filled : stop], encoded, self._layout)
        self._filled = stop
        for name, parts in self._parts.items():
            parts.append(lists_of(encoded, name))

    def finish(self) -> None:
        self.lists = {name: Lists.join(parts) for name, parts in self._parts.items()}
        self._parts.clear()

    def read(self, ranges: Ranges, out: NDArray[np.int64]) -> Mapping[str, Lists]:
        filled = 0
        for start, stop in ranges:
            out[filled : filled + stop - start, 0] = np.arange(start, stop)
            filled += stop - start
        return {}

    def whole(
        self, found: NDArray[np.int64], lists: dict[str, Lists]
    ) -> tuple[NDArray[np.int32], dict[str, Lists]]:
        rows = found[:, 0]
        lists = {name: column.take(rows) for name, column in self.lists.items()}
        return take_rows(self.matrix, rows), lists

    def expect(self, ranges: Ranges) -> None:
        """Nothing to do: the rows are here."""

    def close(self) -> None:
        """Let go of the rows."""
        self.matrix, self.lists = self.matrix[:0], {}


class FileStore:
    """Rows in temporary files that have no name: whatever ends the process, nothing stays behind.

    One file for the matrix; for a ragged column one of its values and one of its offsets (int64
    [rows + 1]).
    """

    dtype: DTypeLike = np.int32

    def __init__(self, layout: Layout, directory: str | None) -> None:
        self._layout, self.width, self.beside = layout, layout.words, layout.ragged
        self._directory = directory or str(system_folder())
        self._matrix = self._new()
        self._lists = {name: (self._new(), self._new()) for name in layout.ragged}
        self._ends = dict.fromkeys(layout.ragged, 0)
        # The kernel finds memory for the pages before it answers, which takes as long as reading
        # them.
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="distcore-ahead")
        for _, offsets in self._lists.values():
            self._write(offsets, np.zeros(1, np.int64))

    def append(self, encoded: pa.RecordBatch) -> None:
        matrix = np.empty((encoded.num_rows, self._layout.words), np.int32)
        pack_rows(matrix, encoded, self._layout)
        self._write(self._matrix, matrix)
        for name, (values, offsets) in self._lists.items():
            lists = lists_of(encoded, name)
            self._write(values, lists.values)
            self._write(offsets, lists.offsets[1:] + self._ends[name])
            self._ends[name] += int(lists.offsets[-1])

    def finish(self) -> None:
        """Nothing to do: every append wrote through."""

    def read(self, ranges: Ranges, out: NDArray[np.int32]) -> Mapping[str, Lists]:
        words, filled, file = self._layout.words, 0, self._matrix.fileno()
        for start, stop in ranges:
            _read_into(file, out[filled : filled + stop - start], start * words * 4)
            filled += stop - start
        return {
            name: Lists.join(self._read_lists(name, *each) for each in ranges)
            for name in self._lists
        }

    def whole(
        self, found: NDArray[np.int32], lists: dict[str, Lists]
    ) -> tuple[NDArray[np.int32], dict[str, Lists]]:
        return found, lists

    def expect(self, ranges: Ranges) -> None:
        """Ask the kernel to read ahead: the disk works while the windows before are gathered
        from."""
        if hasattr(os, "posix_fadvise"):
            self._asking.submit(self._ask, ranges)

    def close(self) -> None:
        """Give the disk space back."""
        self._asking.shutdown(cancel_futures=True)
        for file in (self._matrix, *(each for pair in self._lists.values() for each in pair)):
            file.close()

    # -------------------------------------------------------------- inside

    def _ask(self, ranges: Ranges) -> None:
        row = self._layout.words * 4
        for start, stop in ranges:
            os.posix_fadvise(
                self._matrix.fileno(), start * row, (stop - start) * row, os.POSIX_FADV_WILLNEED
            )

    def _read_lists(self, name: str, start: int, stop: int) -> Lists:
        values_file, offsets_file = self._lists[name]
        offsets = np.empty(stop - start + 1, np.int64)
        _read_into(offsets_file.fileno(), offsets, start * 8)
        values = np.empty(offsets[-1] - offsets[0], np.int32)
        _read_into(values_file.fileno(), values, int(offsets[0]) * 4)
        return Lists(values, offsets - offsets[0])

    def _new(self) -> IO[bytes]:
        try:
            os.makedirs(self._directory, exist_ok=True)
            return unnamed_file("packed", self._directory)
        except OSError as error:
            raise self._unwritable(error) from error

    def _write(self, file: IO[bytes], values: NDArray[np.int32] | NDArray[np.int64]) -> None:
        left = np.ascontiguousarray(values).data.cast("B") if values.size else memoryview(b"")
        try:
            while left:
                left = left[file.write(left) :]
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> CacheError:
        return CacheError(
            f"The loader's scratch file in {self._directory} cannot be written: "
            f"{error.strerror or error}. Make room there, or hold the rows in memory with "
            "backend.loader.fully_executed: true."
        )


def pack_rows(matrix: NDArray[np.int32], encoded: pa.RecordBatch, layout: Layout) -> None:
    """Fill matrix [n, W] from the n encoded rows, a slice at a time."""
    for start in range(0, encoded.num_rows, SLICE_ROWS):
        pack_into(matrix[start : start + SLICE_ROWS], encoded.slice(start, SLICE_ROWS), layout)


def lists_of(encoded: pa.RecordBatch, name: str) -> Lists:
    """A ragged column of the encoded rows."""
    ragged = ragged_of(encoded.column(name))
    return Lists(ragged.values.numpy(), ragged.offsets.numpy())


def _read_into(file: int, out: NDArray[np.int32] | NDArray[np.int64], offset: int) -> None:
    """Fill a contiguous array from the file, however many reads it takes."""
    if not out.size:
        return
    left = out.data.cast("B")
    while left:
        count = os.preadv(file, [left], offset)
        if count == 0:
            raise CacheError(
                "The loader's scratch file ended early: something else cut it. Run the command "
                "again."
            )
        left, offset = left[count:], offset + count
