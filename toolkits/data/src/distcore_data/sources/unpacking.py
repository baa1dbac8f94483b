"""Compressed files: what they are by their first bytes, and their content as a file.

Whatever is left of a damaged file never passes for the whole of it, and no file fills a disk.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from distcore_core.errors import DataError
from distcore_data.sources.fetch import MOST_RATIO, PIECE, Workplace, copy

MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
"""The first bytes of a compressed file: of what kind it is."""

UNSUSPICIOUS = 1 << 30
"""Bytes that any file may unpack to."""

SMALL = 1 << 10
"""Bytes that are read at once where a file is damaged."""

COUNTED = 1 << 26
"""Bytes unpacked of a file's first ones whose lines are counted, however well they are packed."""

START = 1 << 12
"""Packed bytes that a stream begins with: what it leaves of them is copied for the next one."""

# Arrow's errors are OSError or ValueError.
DAMAGED = (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError)


def compression_of(path: Path) -> str | None:
    """gzip, zstd, bzip2 or xz, by the file's first bytes."""
    with open(path, "rb") as file:
        head = file.read(6)
    return next((name for magic, name in MAGIC.items() if head.startswith(magic)), None)


def unpacked(path: Path, shown: str, place: Workplace, limit: int | None = None) -> Path:
    """The file itself, or, if it is compressed, its (first `limit` bytes of) content as a new
    file."""
    kind = compression_of(path)
    if kind is None:
        return path
    target = place.path(path.stem)
    try:
        most = max(UNSUSPICIOUS, MOST_RATIO * path.stat().st_size)
        copy(lambda: _unpacker(kind, path), target, shown, limit, most)
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # what the system says, and not what is packed
        size, lines = _sound(kind, path, target.stat().st_size)
        raise DataError(
            f"{shown}: the {kind} data are damaged or cut short: of what is packed, {size} bytes "
            f"({lines} lines) can be read ({error}). Get the file again, or unpack it to see what "
            "is left."
        ) from error
    return target


def head_of(path: Path, most: int) -> bytes:
    """The first bytes of a file's content; none, if it is compressed and damaged."""
    kind = compression_of(path)
    if kind is None:
        with open(path, "rb") as plain:
            return plain.read(most)
    head = b""
    try:
        with _unpacker(kind, path) as file:
            while piece := file.read(most - len(head)):  # of several streams, one at a time
                head += piece
    except DAMAGED:
        return b""
    return head


def lines_of_first(path: Path, most: int, place: Workplace) -> tuple[int, int]:
    """How many lines the first `most` bytes of a file hold, unpacked if they are compressed, and
    how many bytes these are. Of what unpacks to more than an honest file does, fewer lines."""
    with open(path, "rb") as file:
        first = file.read(most)
    kind = compression_of(path)
    if kind is None:
        return first.count(b"\n"), len(first)
    cut = place.path(path.name)
    cut.write_bytes(first)
    return _sound(kind, cut, 0, max(COUNTED, MOST_RATIO * len(first)))[1], len(first)


def _sound(kind: str, path: Path, known: int, most: float = math.inf) -> tuple[int, int]:
    """How many bytes and lines of a damaged file can be read. known: bytes that were; most: about
    how many are."""
    size = lines = 0
    try:
        with _unpacker(kind, path) as file:
            while size < most and (piece := file.read(PIECE if size + PIECE <= known else SMALL)):
                size += len(piece)
                lines += piece.count(b"\n")
    except DAMAGED:
        pass
    return size, lines


def _unpacker(kind: str, path: Path) -> Any:
    if kind == "zstd":
        import pyarrow as pa

        return pa.CompressedInputStream(pa.OSFile(os.fsencode(path)), "zstd")
    if kind == "gzip":
        return _gzip(path)
    return Streams(path, {"bzip2": bz2.BZ2Decompressor, "xz": lzma.LZMADecompressor}[kind])


@contextmanager
def _gzip(path: Path) -> Iterator[Any]:
    """By ISA-L, three times as fast as zlib, on the machines that it was made for."""
    try:
        from isal import igzip, isal_zlib
    except ImportError:
        with gzip.GzipFile(path, "rb") as file:
            yield file
        return
    damaged: Any = isal_zlib.error  # a class, though its stub says an exception
    try:
        with igzip.IGzipFile(path, "rb") as file:
            yield file
    except damaged as error:
        raise zlib.error(str(error)) from error


class Streams:
    """bzip2 or xz streams, one behind another, as parallel packers write them.

    Python's own readers take whatever follows a stream and does not begin as another for the end of
    the file: one damaged bit there, and the rows behind it would be missing without a word.
    """

    def __init__(self, path: Path, begin: Callable[[], Any]) -> None:
        self._begin, self._stream = begin, begin()
        self._file = open(path, "rb")  # noqa: SIM115 - closed by __exit__
        self._piece, self._at, self._step = memoryview(b""), 0, START

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, most: int) -> bytes:
        """At most that many bytes, none at the end. Raises as the decompressor does, EOFError for
        a stream that is cut."""
        while most > 0:
            packed: bytes | memoryview = b""
            if self._stream.eof:
                packed = self._behind()
                if not packed:
                    return b""
                self._stream = self._begin()
            elif self._stream.needs_input:
                packed = self._packed()
                if not packed:
                    raise EOFError("it ends within a stream")
            try:
                unpacked = self._stream.decompress(packed, most)
            except MemoryError:
                if self._begin is bz2.BZ2Decompressor:  # which never takes much
                    raise
                raise lzma.LZMAError("or this machine lacks the memory that they ask for") from None
            if unpacked:
                return bytes(unpacked)
        return b""

    def _behind(self) -> bytes:
        """What follows a stream, without the zero bytes that may fill up a file."""
        self._at -= len(self._stream.unused_data)  # of what was given last: it asked for that
        self._step = START
        while packed := self._packed():
            if rest := bytes(packed).lstrip(b"\0"):
                return rest
        return b""

    def _packed(self) -> memoryview:
        """The next bytes of the file; none at its end."""
        if self._at == len(self._piece):
            self._piece, self._at = memoryview(self._file.read(PIECE)), 0
        found = self._piece[self._at : self._at + self._step]
        self._at, self._step = self._at + len(found), min(2 * self._step, PIECE)
        return found
