"""A file in memory of which only the written pages exist: for a library that writes little
pieces far apart."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any

PAGE = 4096


class SparseFile(io.RawIOBase):
    """Readable, writable, seekable; what was never written reads as zeros, up to the last byte
    that was."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}
        self._position = self._end = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for page, begin, piece in self._cut(len(view)):
            self._pages.setdefault(page, bytearray(PAGE))[begin : begin + len(piece)] = view[
                piece.start : piece.stop
            ]
        self._position += len(view)
        self._end = max(self._end, self._position)
        return len(view)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = min(len(view), max(self._end - self._position, 0))
        for page, begin, piece in self._cut(count):
            found = self._pages.get(page)
            view[piece.start : piece.stop] = (
                found[begin : begin + len(piece)] if found else bytes(len(piece))
            )
        self._position += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = (
            offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._end}[whence]
        )
        return self._position

    def tell(self) -> int:
        return self._position

    def truncate(self, size: int | None = None) -> int:
        """Nothing: whoever asks knows the size by other means."""
        return self._end

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def part(self, start: int, stop: int) -> memoryview:
        """Bytes [start, stop), zeros if nothing was written."""
        found = memoryview(bytearray(stop - start))
        self.seek(start)
        self.readinto(found)
        return found

    def _cut(self, length: int) -> Iterator[tuple[int, int, range]]:
        """(page, where in it, which bytes of `length` ones from the position) of each page that
        they touch."""
        done = 0
        while done < length:
            page, begin = divmod(self._position + done, PAGE)
            count = min(PAGE - begin, length - done)
            yield page, begin, range(done, done + count)
            done += count
