"""xxh3 of bytes as they are read: what a cache's reader compares, to notice damage."""

from __future__ import annotations

from typing import BinaryIO

import xxhash

from distcore_core.io.digest import CHUNK


class PassingDigest:
    """xxh3 of a file's bytes as they go by: blocks in order; one that begins at 0 again begins
    anew."""

    def __init__(self) -> None:
        self._xxh3, self._length = xxhash.xxh3_64(), 0

    def __call__(self, start: int, block: bytes) -> None:
        if start == 0:
            self._xxh3.reset()
        self._xxh3.update(block)
        self._length = start + len(block)

    def of(self, length: int) -> str | None:
        """The hex digest, if as many bytes went by."""
        return self._xxh3.hexdigest() if self._length == length else None


def fast_digest(file: BinaryIO) -> str:
    """xxh3 of an open file from where it stands, read in pieces of CHUNK bytes."""
    digest, buffer = xxhash.xxh3_64(), memoryview(bytearray(CHUNK))
    while count := file.readinto(buffer):  # type: ignore[attr-defined]
        digest.update(buffer[:count])
    return digest.hexdigest()
