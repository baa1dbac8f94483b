"""Where a text file may be cut: after a newline that is not inside quotes. And its digest, in the
same pass.

The file is read once in stripes that fit the processor's cache. A stripe is outside or inside
quotes at its start by the parity of the quotes before it. That is right as long as every quote
opens a field, closes one, or is one of a doubled pair; each quote's neighbours are checked, and in
a file where one stands elsewhere (5" pipe) the records are walked one by one instead (records.py).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from distcore_data.threads import processors

STRIPE = 1 << 18
SEGMENT = 64
"""Stripes that one thread takes at a time; the file's digest is that of its segments' digests."""

PIECE = 1 << 16
"""Bytes read at once where a newline is looked for."""

THREADS = min(4, processors())
"""Four read from memory as fast as it gives."""


@dataclass(frozen=True)
class Scan:
    """What one pass over a file found.

    digest: of all its bytes. inside: for each stripe, 1 if it starts inside quotes. quoted: for
    each stripe, 1 if it holds a quote. regular: whether `inside` can be trusted. unclosed: offset
    of the last quote, if the file ends inside quotes.
    """

    digest: str
    inside: bytes
    quoted: bytes
    regular: bool
    unclosed: int | None

    def has_quotes(self, start: int, stop: int) -> bool:
        """Whether there may be a quote in the bytes [start, stop)."""
        return self.quoted.find(1, start // STRIPE, (stop - 1) // STRIPE + 1) >= 0


def scan(path: str | Path, start: int, delimiter: str, quote: str) -> Scan:
    """One pass over the file; the text begins at byte `start` (behind a byte order mark).

    Threads take segments, each of which finds out what holds if it starts outside and if it
    starts inside quotes."""
    text = _Text(path, start, quote.encode(), (delimiter + "\r\n" + quote).encode())
    offsets = range(0, max(1, os.path.getsize(path)), SEGMENT * STRIPE)
    if len(offsets) == 1:
        segments = [text.segment(0)]
    else:
        with ThreadPoolExecutor(
            min(THREADS, len(offsets)), thread_name_prefix="distcore-scan"
        ) as pool:
            try:
                segments = list(pool.map(text.segment, offsets))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    hasher = xxhash.xxh3_128()
    inside, quoted = bytearray(), bytearray()
    parity, regular, last_quote = 0, True, None
    closed_at_edge = False
    for segment in segments:
        hasher.update(segment.digest)
        found = segment.outside if parity == 0 else segment.inside
        regular = regular and found.regular and not (closed_at_edge and not segment.starts_well)
        closed_at_edge = found.closed_at_edge if segment.starts else closed_at_edge
        inside += bytes(each ^ parity for each in segment.starts)
        quoted += segment.quoted
        parity ^= segment.parity
        last_quote = segment.last_quote if segment.last_quote is not None else last_quote
    return Scan(
        hasher.hexdigest(), bytes(inside), bytes(quoted), regular, last_quote if parity else None
    )


@dataclass
class _Walk:
    """A walk through a segment's stripes that began outside quotes (parity 0) or inside.

    closed_at_edge: the last byte seen is a closing quote, so that the next one must be one of
        those allowed."""

    parity: int
    regular: bool = True
    closed_at_edge: bool = False

    def step(self, text: np.ndarray, where: np.ndarray, before: int, allowed: bytes) -> None:
        self.regular = self.regular and _regular(text, where, self.parity, before, allowed)
        self.parity = (self.parity + len(where)) % 2
        self.closed_at_edge = (
            bool(len(where)) and int(where[-1]) == len(text) - 1 and self.parity == 0
        )

    def enter(self, first_is_allowed: bool) -> None:
        self.regular = self.regular and not (self.closed_at_edge and not first_is_allowed)
        self.closed_at_edge = False


@dataclass
class _Segment:
    """What was found in a segment. starts: for each stripe its parity if the segment starts outside
    quotes.

    parity: of all its quotes. starts_well: whether its first byte may follow a closing quote."""

    digest: bytes
    starts: bytearray
    quoted: bytearray
    outside: _Walk
    inside: _Walk
    parity: int
    last_quote: int | None
    starts_well: bool


@dataclass(frozen=True)
class _Text:
    """A file whose text begins at byte `start`; allowed: bytes that may stand beside a quote's
    outer side."""

    path: str | Path
    start: int
    quote: bytes
    allowed: bytes

    def segment(self, offset: int) -> _Segment:
        """Digest and quotes of the segment that begins at `offset`."""
        hasher = xxhash.xxh3_128()
        found = _Segment(b"", bytearray(), bytearray(), _Walk(0), _Walk(1), 0, None, True)
        stripe = bytearray(STRIPE)
        with open(self.path, "rb", buffering=0) as file:
            before = 10
            if offset > self.start:
                file.seek(offset - 1)
                before = (file.read(1) or b"\n")[0]
            file.seek(offset)
            for at in range(offset, offset + SEGMENT * STRIPE, STRIPE):
                size = _fill(file, memoryview(stripe))
                if not size:
                    break
                hasher.update(memoryview(stripe)[:size])
                if at == offset:
                    found.starts_well = stripe[0] in self.allowed
                self._stripe(found, stripe, size, at, before)
                before = stripe[size - 1] if at + size > self.start else 10
        found.digest = hasher.digest()
        return found

    def _stripe(self, found: _Segment, stripe: bytearray, size: int, at: int, before: int) -> None:
        walks = (found.outside, found.inside)
        for walk in walks:
            walk.enter(stripe[0] in self.allowed)
        found.starts.append(found.parity)
        found.quoted.append(bool(self.quote) and stripe.find(self.quote, 0, size) >= 0)
        if found.quoted[-1]:
            skipped = min(size, max(0, self.start - at))  # the mark in front of the text
            text = np.frombuffer(stripe, np.uint8, size)[skipped:]
            where = np.flatnonzero(text == self.quote[0])
            for walk in walks:
                walk.step(text, where, 10 if skipped else before, self.allowed)
            found.parity = (found.parity + len(where)) % 2
            found.last_quote = at + skipped + int(where[-1])


def _fill(file: object, view: memoryview) -> int:
    """Read until the view is full or the file ends, so that stripes lie at multiples of STRIPE."""
    filled = 0
    while filled < len(view) and (size := file.readinto(view[filled:])):  # type: ignore[attr-defined]
        filled += size
    return filled


def _regular(text: np.ndarray, where: np.ndarray, parity: int, before: int, allowed: bytes) -> bool:
    """Whether opening quotes follow, and closing ones precede, one of the allowed bytes.

    where: positions of quotes. before: the byte in front of the text; the next stripe checks the
        one behind it.
    """
    opening, closing = where[parity::2], where[1 - parity :: 2]
    first = int(opening[0]) if len(opening) else 1
    if first == 0 and before not in allowed:
        return False
    return _all_in(text.take(opening[first == 0 :] - 1), allowed) and _all_in(
        text.take(closing[closing < len(text) - 1] + 1), allowed
    )


def _all_in(values: np.ndarray, allowed: bytes) -> bool:
    fits = values == allowed[0]
    for byte in allowed[1:]:
        fits |= values == byte
    return bool(fits.all())


def cuts(
    path: str | Path, start: int, target_bytes: int, newline: bytes, found: Scan | None, quote: str
) -> list[int]:
    """Increasing offsets from `start` to the file's end; each pair bounds whole records of about
    target_bytes.

    found: the file's scan, whose `regular` must hold, or None if quotes have no meaning.
    """
    with open(path, "rb", buffering=0) as text:
        size = os.fstat(text.fileno()).st_size
        pieces = max(1, -(-(size - start) // max(1, target_bytes)))
        offsets = [start]
        for piece in range(1, pieces):
            wanted = start + (size - start) * piece // pieces
            if wanted > offsets[-1]:
                end = _record_end(text.fileno(), size, wanted, newline, found, quote.encode())
                if end == size:
                    break
                if offsets[-1] < end:
                    offsets.append(end)
        return [*offsets, size]


def _record_end(
    text: int, size: int, wanted: int, newline: bytes, found: Scan | None, quote: bytes
) -> int:
    """Offset behind the first newline outside quotes that is at `wanted` - 1 or later, or
    `size`. text: a handle."""
    parity, at = 0, wanted - 1
    quoted = found is not None and bool(quote)
    if found is not None and quoted:
        stripe = at // STRIPE
        before = os.pread(text, at - stripe * STRIPE, stripe * STRIPE)
        parity = (found.inside[stripe] + before.count(quote)) % 2
    while piece := os.pread(text, PIECE, at):
        counted = 0
        while counted < len(piece):
            end = -1 if parity else piece.find(newline, counted)
            # Inside of quotes no newline counts before the next quote.
            mark = piece.find(quote, counted, None if end < 0 else end) if quoted else -1
            if mark < 0 <= end:
                return at + end + 1
            if mark < 0:
                break
            parity, counted = 1 - parity, mark + 1
        at += len(piece)
    return size


def line_number(path: str | Path, offset: int, newline: bytes = b"\n") -> int:
    """1-based line of the file in which the byte at `offset` lies."""
    line = 1
    with open(path, "rb") as file:
        while offset > 0 and (piece := file.read(min(offset, 1 << 22))):
            line += piece.count(newline)
            offset -= len(piece)
    return line
