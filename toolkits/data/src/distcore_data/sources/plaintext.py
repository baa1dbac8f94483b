"""The compiled reader of plain delimited text and JSON lines, if it was built: twice as fast as
Arrow's, and more for JSON, to the same bits.

It takes ranges whose rows and numbers are regular, with quotes around whole texts alone, or of JSON
objects of scalars without backslashes, and says None to all others: Arrow's reader then decides
what the text means. So nothing but speed depends on whether a C compiler was there when distcore
was installed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from distcore_data.json_text import STRING

if TYPE_CHECKING:
    from types import ModuleType

compiled: ModuleType | None
try:
    from distcore_data.sources import _plaintext as compiled
except ImportError:
    compiled = None

DELIMITERS = frozenset(",;\t|")
"""Those that cannot be part of a number."""

QUOTES = frozenset("\"'")
"""The same of quotes."""

KINDS = {"number": 1, "category": 2}
WHOLE = 3
"""The kind of a category of whole numbers, in JSON."""

WIDTHS = {1: 8, 2: 4, WHOLE: 4}
LINE = 64
"""Bytes of a line of the processor's caches, as most have them."""

JSON_TYPES = {
    0: pa.null(),
    1: pa.bool_(),
    2: pa.int64(),
    4: pa.float64(),
    2 | 4: pa.float64(),
    8: pa.string(),
}
"""What `compiled.keys` says of a column's values, and the type that Arrow gives them."""

LONGEST = 1 << 28
"""Bytes of a text that is taken; partitions are far smaller."""

OPENING, CLOSING = list(b"{["), list(b"}]")

NAME = re.compile(rb'("(?:[^"\\]|\\.)*+")[ \t\r\n]*+:|' + STRING.pattern, re.DOTALL)
"""Its group is a name; other strings are passed over whole."""

MOST_PLACES = 1 << 25
"""Places of a table of JSON lines whose types Arrow is to find: it takes eight bytes for each, also
where nothing is."""

LOWEST, HIGHEST = -307, 288
"""Powers of ten for which 19 digits give neither a subnormal nor an infinity."""


def readable(delimiter: str, decimal: str, raw: Sequence[tuple[str, str]]) -> bool:
    """Whether ranges of such a file are worth trying; numbers are read with points only."""
    return (
        compiled is not None
        and delimiter in DELIMITERS
        and decimal == "."
        and all(kind in KINDS for _, kind in raw)
    )


def read(
    text: pa.Buffer,
    delimiter: str,
    names: Sequence[str],
    raw: Sequence[tuple[str, str]],
    quote: str = "",
) -> pa.RecordBatch | None:
    """The columns in `raw` as float64 or dictionary<int32, utf8>, null if a field is empty; None:
    not plain.

    names: of all columns of the text. quote: empty if none is in it. Every dictionary value occurs
    in the rows, in the order of first appearance; its bytes were not checked to be UTF-8."""
    if compiled is None or len(text) > LONGEST:
        return None
    wanted = dict(raw)
    kinds = bytes(KINDS[wanted[name]] if name in wanted else 0 for name in names)
    places = _Places.of(text, kinds)
    if not quote:
        found = compiled.rows(text, ord(delimiter), kinds, powers(), *places.given)
    elif hasattr(compiled, "quoted") and quote in QUOTES:
        found = compiled.quoted(text, ord(delimiter), ord(quote), kinds, powers(), *places.given)
    else:
        return None
    return None if found is None else _batch(found, places, names, raw)


def json_types(text: pa.Buffer) -> dict[str, pa.DataType] | None:
    """The type of each key's values as Arrow infers it from JSON lines, by first appearance, but
    times as strings; None: not plain, or nothing there."""
    if compiled is None or not hasattr(compiled, "keys") or len(text) > LONGEST:
        return None
    found = compiled.keys(text)
    if not found or not _is_utf8(text) or any(each not in JSON_TYPES for _, each in found):
        return None
    return {name.decode(): JSON_TYPES[each] for name, each in found}


def read_json(
    text: pa.Buffer, types: Mapping[str, pa.DataType], raw: Sequence[tuple[str, str]]
) -> pa.RecordBatch | None:
    """As `read`, of JSON lines; None also if there is no row. A column is null if its key is absent
    or null.

    types: of these columns in the whole file. Dictionary values were checked to be UTF-8."""
    kinds = [_json_kind(types[name], kind) for name, kind in raw]
    if compiled is None or not hasattr(compiled, "objects"):
        return None
    if len(text) > LONGEST or None in kinds:
        return None
    names = [name for name, _ in raw]
    plain = bytes(kind for kind in kinds if kind is not None)
    places = _Places.of(text, plain)
    keys = [name.encode() for name in names]
    found = compiled.objects(text, keys, plain, powers(), *places.given)
    if found is None or not found[0]:
        return None
    batch = _batch(found, places, names, raw)
    # What is not UTF-8, Arrow's reader tells of.
    return batch if all(map(_is_utf8_column, batch.columns)) else None


def _json_kind(type_: pa.DataType, raw: str) -> int | None:
    if raw == "number":
        return KINDS[raw] if type_ in (pa.int64(), pa.float64()) else None
    if raw == "category":
        return {pa.string(): KINDS[raw], pa.int64(): WHOLE}.get(type_)
    return None


def _is_utf8(text: pa.Buffer) -> bool:
    ends = pa.py_buffer(struct.pack("=2q", 0, len(text)))
    return _is_valid(pa.Array.from_buffers(pa.large_utf8(), 1, [None, ends, text]))


def _is_utf8_column(column: pa.Array) -> bool:
    return not pa.types.is_dictionary(column.type) or _is_valid(column.dictionary)


def _is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


@dataclass(frozen=True)
class _Places:
    """Where the values of each column go.

    A row of a wide table is written to every column in turn. They lie an odd number of cache lines
    apart: whole pages apart, as blocks of their own would be, they would all want the same few
    places in the processor's caches.
    """

    room: int
    values: pa.Buffer
    starts: list[int]
    sizes: list[int]

    @classmethod
    def of(cls, text: pa.Buffer, kinds: bytes) -> _Places:
        assert compiled is not None
        room = compiled.lines(text)
        sizes = [room * WIDTHS[kind] if kind else 0 for kind in kinds]
        *starts, end = accumulate(
            (((size + LINE - 1) // LINE | 1) * LINE for size in sizes), initial=0
        )
        return cls(room, pa.allocate_buffer(end), starts, sizes)

    @property
    def given(self) -> tuple[int, pa.Buffer, bytes]:
        """As the compiled reader takes them."""
        return self.room, self.values, struct.pack(f"={len(self.starts)}q", *self.starts)

    def __iter__(self) -> Iterator[pa.Buffer]:
        return map(self.values.slice, self.starts, self.sizes)


def _batch(
    found: tuple[int, Sequence[Any]],
    places: _Places,
    names: Sequence[str],
    raw: Sequence[tuple[str, str]],
) -> pa.RecordBatch:
    rows, described = found
    columns = {}
    for name, parts, values in zip(names, described, places, strict=True):
        if parts is not None:
            missing, valid, *texts = parts
            buffers = [None if valid is None else pa.py_buffer(valid), values]
            columns[name] = _column(rows, missing, buffers, texts)
    return pa.record_batch([columns[name] for name, _ in raw], names=[name for name, _ in raw])


def _column(
    rows: int, missing: int, buffers: list[pa.Buffer | None], texts: Sequence[bytes]
) -> pa.Array:
    if not texts:
        return pa.Array.from_buffers(pa.float64(), rows, buffers, null_count=missing)
    codes = pa.Array.from_buffers(pa.int32(), rows, buffers, null_count=missing)
    offsets, content = map(pa.py_buffer, texts)
    distinct = pa.Array.from_buffers(
        pa.utf8(), len(offsets) // 4 - 1, [None, offsets, content], null_count=0
    )
    return pa.DictionaryArray.from_arrays(codes, distinct, safe=False)


def deepest(text: pa.Buffer | bytes) -> int:
    """How many lists and objects of a JSON text are open at once, at most; what stands in
    strings does not count."""
    if compiled is not None and hasattr(compiled, "deepest"):
        return compiled.deepest(text)
    outside = np.frombuffer(STRING.sub(b"", bytes(memoryview(text))), np.uint8)
    steps = np.isin(outside, OPENING).astype(np.int64) - np.isin(outside, CLOSING)
    depths = np.cumsum(steps)
    return int((depths - np.minimum.accumulate(np.minimum(depths, 0))).max(initial=0))


def is_scattered(text: pa.Buffer | bytes) -> bool:
    """Whether a table of these JSON lines would be empty but for few of its places, and too large
    to be made: their objects have many names, and most of them few of these."""
    if compiled is not None and hasattr(compiled, "names") and len(text) <= LONGEST:
        most = MOST_PLACES // compiled.lines(text)
        return compiled.names(text, most) > most
    plain = bytes(memoryview(text))
    return len(set(NAME.findall(plain)) - {b""}) * (plain.count(b"\n") + 1) > MOST_PLACES


@cache
def powers() -> bytes:
    """The top 128 bits of 5**q for q from LOWEST to HIGHEST, two words each, the high one first.

    Cut off if q is positive; of a negative power the reciprocal, rounded up (Lemire, "Number
    parsing at a gigabyte per second", 2021, sections 5 and 6)."""
    words = []
    for power in range(LOWEST, HIGHEST + 1):
        five = 5 ** abs(power)
        if power < 0:
            top = (1 << (five.bit_length() + 127)) // five + 1
            top >>= top.bit_length() - 128
        else:
            down = five.bit_length() - 128
            top = five >> down if down >= 0 else five << -down
        words += [top >> 64, top & (2**64 - 1)]
    return struct.pack(f"={len(words)}Q", *words)
