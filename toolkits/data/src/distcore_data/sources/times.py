"""Dates and times as pandas writes them to csv, or to the second.

pandas chooses one format for a whole column of timestamps: only the date if every value is
midnight, else as many digits of a second as the finest value needs. So the unit is found over the
whole column, never over a partition. With a time zone, each value is written by itself: no
fraction, or six digits, or nine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from distcore_data.arrow import plain, scalar, strings, to_numpy, truths, validity

UNITS = ("date", "s", "ms", "us", "ns")
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


MOMENT = pa.timestamp("s")
"""What a column is read as whose feature asks for times, if it has some."""

WRITTEN = re.compile(r"-?\d+-\d\d-\d\d")
"""How the text of a day or a timestamp begins."""


def settled(
    raw: Mapping[str, str], types: Mapping[str, pa.DataType], null_values: Iterable[str]
) -> dict[str, str]:
    """How to read each column, if a source has these types: what may be read as times is, unless it
    has none, has them by a clock of somewhere, or a null spelling is the text of one."""
    may_be_null = any(map(WRITTEN.match, null_values))

    def is_read(name: str) -> bool:
        type_ = types.get(name, pa.null())
        has_times = pt.is_date32(type_) or (pt.is_timestamp(type_) and type_.tz is None)
        return has_times and not may_be_null

    return {
        name: "category" if kind == "time" and not is_read(name) else kind
        for name, kind in raw.items()
    }


def to_the_second(values: pa.Array) -> pa.Array:
    """Days and timestamps as timestamp[s], by the clock that their text would have; what is within
    a second is left out."""
    type_ = values.type
    if pt.is_null(type_) or not len(values):
        return pa.nulls(len(values), MOMENT)
    if pt.is_dictionary(type_):
        return to_the_second(values.dictionary_decode())
    if pt.is_date(type_):
        return values.cast(pa.date32()).cast(MOMENT)
    if type_.tz is not None:
        return to_the_second(pc.local_timestamp(values))
    if type_ == MOMENT:
        return values
    ticks = plain(values.view(pa.int64()))
    seconds = pa.py_buffer(ticks // PER_SECOND[type_.unit])  # rounds down, also before 1970
    content = [validity(values), seconds]
    return pa.Array.from_buffers(MOMENT, len(values), content, values.null_count)


def finest(units: Iterable[str]) -> str:
    """The finest of some units; "date" if there are none."""
    return max(units, key=UNITS.index, default="date")


def unit_of(values: pa.Array | pa.ChunkedArray) -> str:
    """The coarsest of UNITS that writes these timestamps without loss."""
    if isinstance(values, pa.ChunkedArray):
        return finest(map(unit_of, values.chunks))
    type_ = values.type.value_type if pt.is_dictionary(values.type) else values.type
    if pt.is_null(type_):  # one of several files, which has no value of the column
        return finest([])
    ticks = to_numpy(values.cast(type_).drop_null().view(pa.int64()))
    per_second = PER_SECOND[type_.unit]
    if type_.tz is None and not (ticks % (86_400 * per_second)).any():
        return "date"
    for unit in UNITS[1:]:
        step = per_second // min(PER_SECOND[unit], per_second)
        if not (ticks % step).any():
            return unit
    raise AssertionError("a step of 1 divides everything")


def timestamp_text(values: pa.Array, unit: str | None) -> pa.Array:
    """`2024-01-05`, `2024-01-05 10:00:00`, `2024-01-05 10:00:00.500+01:00`, … in the given unit
    (None: the array's)."""
    unit = unit or unit_of(values)
    zone = values.type.tz
    if unit == "date":
        return values.cast(pa.date32()).cast(pa.utf8())
    if zone is None:
        return _in_unit(values, unit)
    local = pc.local_timestamp(values)
    text = _by_itself(local)
    ahead = pc.subtract(local.cast(pa.int64()), values.cast(pa.int64()))
    seconds = pc.divide(ahead, scalar(PER_SECOND[values.type.unit]))
    offsets = seconds.dictionary_encode()
    spelled = strings([_offset(each) for each in offsets.dictionary.to_pylist()])
    return pc.binary_join_element_wise(text, spelled.take(offsets.indices), scalar(""))


def _in_unit(values: pa.Array, unit: str) -> pa.Array:
    """The text of timestamps without a zone, with as many digits as the unit has, which loses
    nothing."""
    own = values.type.unit
    if PER_SECOND[unit] <= PER_SECOND[own]:
        return values.cast(pa.timestamp(unit), safe=False).cast(pa.utf8())
    # Of a finer unit an int64 holds fewer years: 9999 would become 1816.
    digits, more = (len(str(PER_SECOND[each])) - 1 for each in (own, unit))
    zeros = scalar(("" if digits else ".") + "0" * (more - digits))
    return pc.binary_join_element_wise(values.cast(pa.utf8()), zeros, scalar(""))


def _by_itself(local: pa.Array) -> pa.Array:
    """Each timestamp with no digits of a second, six or nine, as few as it needs."""
    ticks = plain(local.view(pa.int64()))
    per_second = PER_SECOND[local.type.unit]
    text = _in_unit(local, "ns" if local.type.unit == "ns" else "us")
    if local.type.unit == "ns":
        text = pc.if_else(truths(ticks % 1000 == 0), pc.utf8_slice_codeunits(text, 0, -3), text)
    # From its end: years have four digits or more.
    return pc.if_else(truths(ticks % per_second == 0), pc.utf8_slice_codeunits(text, 0, -7), text)


def time_text(values: pa.Array) -> pa.Array:
    """`10:00:00`, with six more digits if there is a fraction of a second, as Python writes a
    time; with nine if it has parts of a microsecond, which Python's times cannot have."""
    text = values.cast(pa.time64("us"), safe=False).cast(pa.utf8())
    if values.type == pa.time64("ns"):
        is_finer = plain(values.view(pa.int64())) % 1000 != 0
        if is_finer.any():
            text = pc.if_else(truths(is_finer), values.cast(pa.utf8()), text)
    return pc.replace_substring_regex(text, r"\.000000$", "")


def _offset(seconds: int) -> str:
    sign = "-" if seconds < 0 else "+"
    minutes, rest = divmod(abs(seconds), 60)
    return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" + (f":{rest:02d}" if rest else "")
