"""Values as the text of JSON, in pieces that are small beside a document of millions of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, repeat
from typing import TYPE_CHECKING, Any

from distcore_data.arrow_list import ArrowList

if TYPE_CHECKING:
    import pyarrow as pa

MOST_DEPTH = 64
"""Lists and mappings inside of each other."""

TOO_DEEP = f"it is nested deeper than {MOST_DEPTH} levels"

STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""A string of a JSON text; one that does not end goes to the text's end, so that each byte is
looked at once."""

PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types of values that hold no others."""

ENCODED_AT_ONCE = 1 << 14
"""Values of a list that are encoded by one call."""

OF_ARROW_AT_ONCE = 1 << 17
"""Values of an `ArrowList` that are: other threads may have Python after each call."""

MAPPINGS_AT_ONCE = 1 << 10
"""Mappings of plain values that are."""

AS_THEY_ARE = bytes(set(range(0x20, 0x100)) - set(b'"\\'))
"""Bytes of UTF-8 that need no escape."""


def in_line(value: Any, sort_keys: bool, separators: tuple[str, str] | None = None) -> str:
    """The value's JSON in one line. Raises TypeError or ValueError for what is none."""
    return json.dumps(
        value,
        sort_keys=sort_keys,
        separators=separators,
        ensure_ascii=False,
        allow_nan=False,
        default=_listed,
    )


def indented(value: Any, sort_keys: bool, level: int = 1) -> Iterator[str]:
    """What `json.dumps(value, indent=1)` gives, in pieces. Its own way calls Python for every
    value; here a list or mapping of plain values is one call of the compiled encoder."""
    if not value or not isinstance(value, dict | list | tuple | ArrowList):
        yield in_line(value, sort_keys)
        return
    if level > MOST_DEPTH:
        raise ValueError(TOO_DEEP)
    between = ",\n" + " " * level
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    start = opening + between[1:]
    if isinstance(value, ArrowList):
        for piece in value.pieces(OF_ARROW_AT_ONCE):
            yield start + _of_arrow(piece, between)
            start = between
        yield between[1:-1] + closing
        return
    kinds = set(map(type, value.values() if isinstance(value, dict) else value))
    if PLAIN.issuperset(kinds):
        if isinstance(value, dict):
            yield start + in_line(value, sort_keys, (between, ": "))[1:-1]
        else:
            # The encoder makes two texts of each value before it joins them.
            for at in range(0, len(value), ENCODED_AT_ONCE):
                some = value[at : at + ENCODED_AT_ONCE]
                yield start
                yield _joined(some, kinds, between) or in_line(some, False, (between, ""))[1:-1]
                start = between
    else:
        names: Iterable[str] = repeat("")
        if isinstance(value, dict):
            items = sorted(value.items()) if sort_keys else list(value.items())
            names = _names([key for key, _ in items])
            value = [each for _, each in items]
        for name, pieces in zip(names, _each(value, sort_keys, level + 1), strict=False):
            if isinstance(pieces, str):
                yield start + name + pieces
            else:
                yield start + name
                yield from pieces
            start = between
    yield between[1:-1] + closing


# ------------------------------------------------------------------ inside


def _listed(value: Any) -> list[Any]:
    """What the encoder asks about a value that it does not know."""
    if isinstance(value, ArrowList):
        return list(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _of_arrow(values: pa.Array, between: str) -> str:
    """Texts or whole numbers as the encoder would write them; by Arrow if no text needs an escape.

    between: What stands between them."""
    from distcore_data.arrow import joined

    if str(values.type) != "string":
        return str(joined(values.cast("string"), between))
    if joined(values, "").as_buffer().to_pybytes().translate(None, AS_THEY_ARE):
        return in_line(values.to_pylist(), False, (between, ""))[1:-1]
    return '"' + str(joined(values, f'"{between}"')) + '"'


def _names(keys: list[Any]) -> list[str]:
    """How each key of a mapping begins its line."""
    if set(map(type, keys)) != {str}:
        return [in_line({key: 0}, False)[1:-2] for key in keys]
    names = in_line(keys, False, (",\n", ""))[1:-1].split(",\n")  # no text has a line break
    return [f"{name}: " for name in names]


def _each(values: Sequence[Any], sort_keys: bool, level: int) -> Iterator[str | Iterator[str]]:
    """The text of each value, or its pieces. One call of the encoder makes many mappings of plain
    values, such as the metadata of a thousand numbers: a line break stands between two of them, and
    in no text."""
    between, closing = ",\n" + " " * level, "\n" + " " * (level - 1) + "}"
    for at in range(0, len(values), MAPPINGS_AT_ONCE):
        some = values[at : at + MAPPINGS_AT_ONCE]
        flat = [level <= MOST_DEPTH and _is_flat(each) for each in some]
        whole = in_line(list(compress(some, flat)), sort_keys, (between, ": "))
        texts = iter(whole[2:-2].split("}" + between + "{"))
        for each, together in zip(some, flat, strict=True):
            if together:
                yield "{" + between[1:] + next(texts) + closing
            else:
                yield indented(each, sort_keys, level)


def _is_flat(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and PLAIN.issuperset(map(type, value.values()))


def _joined(values: Sequence[Any], kinds: set[type], between: str) -> str | None:
    """Some texts of which none needs an escape, or whole numbers, as the encoder would write them,
    in half its time; None for anything else.

    kinds: Their types. between: What stands between them."""
    if kinds == {str}:
        text = "".join(values)
        if text.isprintable() and '"' not in text and "\\" not in text:
            return '"' + f'"{between}"'.join(values) + '"'
    elif kinds == {int}:
        digits = {number: repr(number) for number in set(values)}  # most counts are alike
        return between.join(map(digits.__getitem__, values))
    return None
