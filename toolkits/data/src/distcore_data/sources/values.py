"""Any Arrow column as a number, a category or a string, the same from csv, parquet and a frame of
the same rows.

The rule is: a value reads as the text that pandas would write to csv, and a number as that text
would parse. So 1 reads as "1", 1.0 as "1.0", True as "True" (or 1.0 as a number), a float32 0.1 as
0.1. NaN is missing, and so is any text among the null spellings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from distcore_core.errors import DataError
from distcore_data.arrow import flags, from_numpy, null, one_array, strings, to_numpy, truths
from distcore_data.encoding.numbers import surely_finite
from distcore_data.encoding.texts import dictionary_encode, without_unused
from distcore_data.sources.options import DelimitedOptions
from distcore_data.sources.shortest import doubles, float_texts
from distcore_data.sources.times import MOMENT, time_text, timestamp_text, to_the_second

FLOATS = "float"
"""How floats are read that are only kept, where a source has types: as they are, NaN too."""

Place = Callable[[int], str]
"""Row of the array → where that is, such as `data.csv, line 12`."""

TYPES: dict[str, pa.DataType] = {
    "number": pa.float64(),
    "category": pa.dictionary(pa.int32(), pa.utf8()),
    "string": pa.utf8(),
    "time": MOMENT,
}
NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity|nan)$"
BLANKS = " \t"
SHOWN = 60
"""Characters of a bad value that an error quotes."""


def is_text(type_: pa.DataType) -> bool:
    """Whether values of the type are strings already."""
    return pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_)


def is_readable(type_: pa.DataType, raw: str) -> bool:
    """Whether a column of this Arrow type can be read as `raw` at all."""
    if pt.is_dictionary(type_):
        return is_readable(type_.value_type, raw)
    if pt.is_null(type_) or is_text(type_) or pt.is_boolean(type_) or pt.is_decimal(type_):
        return True
    if pt.is_integer(type_) or pt.is_floating(type_):
        return True
    return raw != "number" and (pt.is_date(type_) or pt.is_time(type_) or pt.is_timestamp(type_))


def typed(
    values: pa.Array | pa.ChunkedArray,
    raw: str,
    column: str,
    options: DelimitedOptions,
    place: Place,
    unit: str | None = None,
) -> pa.Array:
    """The column as float64, dictionary<int32, utf8>, utf8 or timestamp[s], with nulls if values
    are missing.

    Every value of a dictionary occurs in the rows. raw: as `times.settled` says, or FLOATS. unit:
    see `times.timestamp_text`. Raises DataError naming place and column for the first value that is
    not a number or is infinite, if a number is asked for.
    """
    if pt.is_dictionary(values.type) and getattr(values, "num_chunks", 1) > 1:
        # By itself each has room in its codes, and no null among its values, which Arrow asks for
        # where it joins them.
        if raw == FLOATS:
            return one_array(pa.chunked_array([each.dictionary_decode() for each in values.chunks]))
        ends = [0, *accumulate(map(len, values.chunks))]
        return one_array(
            pa.chunked_array(
                typed(part, raw, column, options, partial(_behind, place, start), unit)
                for part, start in zip(values.chunks, ends, strict=False)
            )
        )
    values = one_array(values)
    if raw == FLOATS:
        return values
    if raw == "number":
        return _checked_numbers(values, column, options, place)
    if raw == "time":
        return to_the_second(values)
    if raw == "category":
        return _categories(values, options.null_values, unit)
    return _strings(values, options.null_values, unit)


def _behind(place: Place, start: int, row: int) -> str:
    return place(start + row)


def finite(values: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a float64 column surely holds no NaN and no infinity (one cheap pass; may say
    False in vain)."""
    if all(map(surely_finite, getattr(values, "chunks", [values]))):
        return True
    total = pc.sum(values).as_py()
    return total is None or math.isfinite(total)


# ------------------------------------------------------------------ numbers


def _checked_numbers(
    values: pa.Array, column: str, options: DelimitedOptions, place: Place
) -> pa.Array:
    numbers, bad = _numbers(values, options)
    if not finite(numbers):
        infinite = flags(pc.is_inf(numbers))
        bad = infinite if bad is None else bad | infinite
        numbers = pc.if_else(pc.is_nan(numbers), null(pa.float64()), numbers)
    if bad is not None and bad.any():
        row = int(np.argmax(bad))
        raise _not_a_number(values[row].as_py(), place(row), column, options.decimal)
    return numbers


def _not_a_number(value: object, where: str, column: str, decimal: str) -> DataError:
    text, other = str(value), "," if decimal == "." else "."
    shown = _shorten(text)
    if math.isinf(_float(text.replace(decimal, "."))):
        return DataError(
            f"{where}, column {column!r}: {shown} is infinite, and a number feature needs finite "
            "values. Correct the value, or leave it empty to have it treated as missing."
        )
    if decimal not in text and other in text and not math.isnan(_float(text.replace(other, "."))):
        return DataError(
            f"{where}, column {column!r}: {shown!r} is not a number: decimals are read with "
            f"{decimal!r}. If {other!r} begins them here, set preprocessing.csv.decimal: "
            f"{other!r}; if it stands between thousands, write the number without it."
        )
    return DataError(
        f"{where}, column {column!r}: {shown!r} is not a number. Declare the column as "
        "another type (`distcore init` suggests one), or, if this means a missing value, add the "
        "spelling to preprocessing.csv.null_values."
    )


def _float(text: str) -> float:
    """NaN for a text that is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _numbers(values: pa.Array, options: DelimitedOptions) -> tuple[pa.Array, np.ndarray | None]:
    """float64, and a mask of the rows that are no numbers (None: there are none)."""
    type_ = values.type
    if pt.is_dictionary(type_):
        numbers, bad = _numbers(values.dictionary, options)
        rows = None if bad is None else _take_mask(bad, values.indices)
        return numbers.take(values.indices), rows
    if is_text(type_):
        return _parsed(values.cast(pa.utf8()), options)
    if pt.is_null(type_):
        return pa.nulls(len(values), pa.float64()), None
    if pt.is_integer(type_) or pt.is_boolean(type_):
        numbers = values.cast(pa.float64(), safe=False)
    else:
        numbers = values if pt.is_float64(type_) else doubles(values)
    return _without_spelled(numbers, values, options), None


def _without_spelled(numbers: pa.Array, values: pa.Array, options: DelimitedOptions) -> pa.Array:
    """The numbers, with those made null whose values have a null spelling for their text."""
    if not options.null_numbers:
        return numbers
    wanted = pc.is_in(numbers, from_numpy(np.array(options.null_numbers)))
    rows = np.flatnonzero(flags(wanted))
    if not len(rows):
        return numbers
    texts = _strings(values.take(from_numpy(rows)), options.null_values, None)
    missing = np.zeros(len(numbers), bool)
    missing[rows[flags(texts.is_null())]] = True
    return pc.if_else(truths(missing), null(pa.float64()), numbers)


def _take_mask(mask: np.ndarray, indices: pa.Array) -> np.ndarray:
    if not len(mask):
        return np.zeros(len(indices), bool)
    found = np.zeros(len(indices), bool)
    valid = flags(indices.is_valid())
    found[valid] = mask[to_numpy(indices.drop_null().cast(pa.int64()))]
    return found


def _parsed(texts: pa.Array, options: DelimitedOptions) -> tuple[pa.Array, np.ndarray | None]:
    """Texts as the csv reader would parse them, and "True" and "False" as 1 and 0."""
    texts = _without(texts, options.null_values)
    trimmed = _without(pc.utf8_trim(texts, BLANKS), options.null_values)
    if options.decimal != ".":
        # What has a point is no number then, and is none with a letter in it.
        pointless = pc.replace_substring(trimmed, ".", "x")
        trimmed = pc.replace_substring(pointless, options.decimal, ".")
    try:
        return trimmed.cast(pa.float64()), None
    except pa.ArrowInvalid:
        pass  # some texts are not numbers: look at each that there is
    found = dictionary_encode(trimmed)
    texts = found.dictionary
    is_number = pc.match_substring_regex(texts, NUMBER, ignore_case=True)
    numbers = pc.if_else(is_number, texts, null(pa.utf8())).cast(pa.float64())
    places = pc.index_in(pc.utf8_lower(texts), value_set=strings(["false", "true"]))
    numbers = pc.coalesce(numbers, places.cast(pa.float64()))
    bad = flags(pc.and_(pc.invert(is_number), places.is_null()))
    return numbers.take(found.indices), _take_mask(bad, found.indices)


# ------------------------------------------------------------------ categories and strings


def _categories(
    values: pa.Array, null_values: tuple[str, ...], unit: str | None
) -> pa.DictionaryArray:
    if pt.is_decimal32(values.type) or pt.is_decimal64(values.type):  # which Arrow does not encode
        values = values.cast(pa.decimal128(values.type.precision, values.type.scale))
    encoded = values if pt.is_dictionary(values.type) else dictionary_encode(values)
    texts = _texts(encoded.dictionary, unit)
    indices = encoded.indices.cast(pa.int32())
    kept = _without(texts, null_values)
    if encoded is not values and _are_told_apart(values.type) and not kept.null_count:
        return pa.DictionaryArray.from_arrays(indices, kept)  # no text twice, and none unused
    if kept.null_count or len(pc.unique(kept)) < len(kept):
        return dictionary_encode(kept.take(indices))
    return without_unused(pa.DictionaryArray.from_arrays(indices, kept))


def _are_told_apart(type_: pa.DataType) -> bool:
    """Whether unlike values of the type have unlike texts: not where a part of them is left out."""
    return not (pt.is_date64(type_) or pt.is_dictionary(type_))


def _strings(values: pa.Array, null_values: tuple[str, ...], unit: str | None) -> pa.Array:
    if is_text(values.type):
        return _without(values.cast(pa.utf8()), null_values)
    encoded = _categories(values, null_values, unit)
    return encoded.dictionary.take(encoded.indices)


def _without(texts: pa.Array, null_values: tuple[str, ...]) -> pa.Array:
    """The texts with null spellings made null."""
    missing = pc.is_in(texts, options=_spellings(null_values))
    if not missing.true_count:
        return texts
    return pc.if_else(missing, null(texts.type), texts)


@lru_cache
def _spellings(null_values: tuple[str, ...]) -> pc.SetLookupOptions:
    """Kept, for a row may have hundreds of columns."""
    return pc.SetLookupOptions(strings(null_values))


def _texts(values: pa.Array, unit: str | None) -> pa.Array:
    """Distinct values as pandas writes them to csv. Raises TypeError for a type that has no such
    text."""
    type_ = values.type
    if is_text(type_):
        return values.cast(pa.utf8())
    if pt.is_boolean(type_):
        return strings(["False", "True"]).take(values.cast(pa.int8()))
    if pt.is_floating(type_):
        return float_texts(values)
    if pt.is_timestamp(type_):
        return timestamp_text(values, unit)
    if pt.is_time(type_):
        return time_text(values)
    if pt.is_date(type_):
        return values.cast(pa.date32()).cast(pa.utf8())
    if pt.is_integer(type_) or pt.is_decimal(type_) or pt.is_null(type_):
        return values.cast(pa.utf8())
    raise TypeError(f"no text for {type_}")


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
