"""Short floats and decimals as the doubles that their texts read as: a float32 0.1 is 0.1, not
0.10000000149.

Compiled code finds nearly all of float32, if it was built; the others are written as text and read
again, to the same doubles. A float16 is looked up: there are 65,536.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from distcore_data.arrow import (
    flags,
    from_numpy,
    null,
    plain,
    scalar,
    strings,
    to_numpy,
    truths,
    validity,
)

if TYPE_CHECKING:
    from types import ModuleType

compiled: ModuleType | None
try:
    from distcore_data.sources import _floats as compiled
except ImportError:
    compiled = None

EXACT = 1 << 53
"""Whole numbers up to this are doubles, and so are powers of ten up to 10**22: their quotient is
rounded once."""

LARGEST_SCALE = 22

USUAL = {pa.float64(): (1e-4, 1e10), pa.float32(): (1e-3, 1e6)}
"""Between these neither Python nor Arrow writes a float with an exponent."""


def doubles(values: pa.Array) -> pa.Array:
    """float16, float32 or decimals [n] as float64, null where they are null."""
    found: np.ndarray | None = None
    if pt.is_float32(values.type):
        found = _of_float32(values)
    elif pt.is_float16(values.type):
        found = _of_float16()[_words(values, np.uint16)]
    elif pt.is_decimal128(values.type):
        found = _of_decimals(values)
    if found is None:
        return _read_again(values)
    content = [validity(values), pa.py_buffer(found)]
    return pa.Array.from_buffers(pa.float64(), len(values), content, values.null_count)


def float_texts(values: pa.Array) -> pa.Array:
    """Shortest text that reads back as the same float, in Python's spelling (1.0, 1e-05); NaN is
    missing."""
    given = _words(values, values.type.to_pandas_dtype())
    is_null = truths(np.isnan(given))
    if values.null_count:
        is_null = pc.or_(is_null, values.is_null())
    usual = USUAL.get(values.type)
    if usual is None:
        texts = strings(given.astype(str).tolist())
    else:
        # Arrow writes them five times as fast, but for the ".0" of whole numbers.
        size = np.abs(given)
        odd = ~((size >= usual[0]) & (size < usual[1]) | (size == 0))
        with np.errstate(invalid="ignore"):  # a NaN that signals
            is_whole = given == np.floor(given)
        endings = strings(["", ".0"]).take(from_numpy(is_whole.astype(np.int8)))
        texts = pc.binary_join_element_wise(values.cast(pa.utf8()), endings, scalar(""))
        if odd.any():
            others = strings(given[odd].astype(str).tolist())
            texts = pc.replace_with_mask(texts, truths(odd), others)
    return pc.if_else(is_null, null(pa.utf8()), texts)


# ------------------------------------------------------------------ inside


def _read_again(values: pa.Array) -> pa.Array:
    """By the texts."""
    texts = float_texts(values) if pt.is_float16(values.type) else values.cast(pa.utf8())
    return texts.cast(pa.float64())


def _of_float32(values: pa.Array) -> np.ndarray | None:
    """float64 [n], anything under nulls; None if no compiled code is there."""
    numbers = values.buffers()[1]
    if compiled is None or numbers is None:
        return None
    found = np.empty(len(values))
    if compiled.doubles(numbers, values.offset, len(values), found):
        given = plain(values)
        left = np.flatnonzero(np.isnan(found) & ~np.isnan(given))
        found[left] = to_numpy(_read_again(from_numpy(given[left])))
    return found


@cache
def _of_float16() -> np.ndarray:
    """float64 [65536], by their bits."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    array = pa.Array.from_buffers(pa.float16(), len(every), [None, pa.py_buffer(every)])
    read = _read_again(array)
    found = np.where(flags(read.is_null()), np.nan, np.frombuffer(read.buffers()[1]))
    return found


def _of_decimals(values: pa.Array) -> np.ndarray | None:
    """float64 [n], anything under nulls; None if a number of digits is no double."""
    words, scale = _words(values, np.int64, 2), values.type.scale
    low, high = words[::2], words[1::2]
    small = (low >= -EXACT) & (low <= EXACT) & (high == low >> 63)
    if not 0 <= scale <= LARGEST_SCALE or not small.all():
        return None
    return low / 10.0**scale


def _words(values: pa.Array, kind: Any, each: int = 1) -> np.ndarray:
    """What lies in memory: [n * each]."""
    start = each * values.offset
    return np.frombuffer(values.buffers()[1], kind)[start : start + each * len(values)]
