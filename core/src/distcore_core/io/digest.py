"""Digests of files: taken while the bytes go by, so that nothing is read back.

xxh3 (about 10 GB/s) is there to notice damage, sha256 (0.2 to 0.4 GB/s on a CPU without the SHA
instructions) to name content.
"""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, cast

import xxhash

CHUNK = 1 << 20
"""Bytes read at once where a file is hashed."""


@dataclass(frozen=True)
class Digest:
    """What a file holds: its length in bytes, and the hex digests of xxh3 (64 bits) and sha256."""

    bytes: int
    xxh3: str
    sha256: str


class HashingFile(io.RawIOBase):
    """A new file that is hashed while it is written; also readable and seekable, for formats that
    patch a header.

    Bytes written in order are hashed as they come. Once anything before the end is overwritten,
    `digest` hashes the file by reading it. Used by one thread at a time.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file: IO[bytes] | None = None
        self._file = open(path, "xb+", buffering=0)  # noqa: SIM115 - closed by close()
        self._xxh3, self._sha256 = xxhash.xxh3_64(), hashlib.sha256()
        self._position = self._end = 0
        self._in_order = True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        written = 0
        while written < len(view):
            written += self._raw().write(view[written:])
        if self._position != self._end:
            self._in_order = False
        elif self._in_order:
            self._xxh3.update(view)
            self._sha256.update(view)
        self._position += written
        self._end = max(self._end, self._position)
        return written

    def readinto(self, buffer: Any) -> int:
        count = cast(io.FileIO, self._raw()).readinto(buffer) or 0
        self._position += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = self._raw().seek(offset, whence)
        return self._position

    def tell(self) -> int:
        return self._position

    def truncate(self, size: int | None = None) -> int:
        self._in_order = False
        self._end = self._raw().truncate(self._position if size is None else size)
        return self._end

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw().fileno()

    def digest(self) -> Digest:
        """What was written; the file stays open."""
        if not self._in_order:
            self.seek(0)
            return digest_open(cast(BinaryIO, self))
        return Digest(self._end, self._xxh3.hexdigest(), self._sha256.hexdigest())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()

    def _raw(self) -> IO[bytes]:
        if self._file is None:
            raise ValueError("the file was never opened")
        return self._file


def digest_file(path: str | os.PathLike[str]) -> Digest:
    """Length and digests of a file that is there, read in pieces of CHUNK bytes."""
    with open(path, "rb", buffering=0) as file:
        return digest_open(cast(BinaryIO, file))


def digest_open(file: BinaryIO) -> Digest:
    """Length and digests of an open file from where it stands."""
    xxh3, sha256, length, buffer = (
        xxhash.xxh3_64(),
        hashlib.sha256(),
        0,
        memoryview(bytearray(CHUNK)),
    )
    while count := file.readinto(buffer):  # type: ignore[attr-defined]
        xxh3.update(buffer[:count])
        sha256.update(buffer[:count])
        length += count
    return Digest(length, xxh3.hexdigest(), sha256.hexdigest())
