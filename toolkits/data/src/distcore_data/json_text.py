"""Values as the text of JSON, in pieces that are small beside a document of millions of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

MOST_DEPTH = 64
"""Lists and mappings inside of each other."""

TOO_DEEP = f"it is nested deeper than {MOST_DEPTH} levels"

PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types of values that hold no others."""

ENCODED_AT_ONCE = 1 << 14
"""Values of a list that are encoded by one call."""


def in_line(value: Any, sort_keys: bool, separators: tuple[str, str] | None = None) -> str:
    """The value's JSON in one line. Raises TypeError or ValueError for what is none."""
    return json.dumps(
        value, sort_keys=sort_keys, separators=separators, ensure_ascii=False, allow_nan=False
    )


def indented(value: Any, sort_keys: bool, level: int = 1) -> Iterator[str]:
    """What `json.dumps(value, indent=1)` gives, in pieces. Its own way calls Python for every
    value; here a list or mapping of plain values is one call of the compiled encoder."""
    if not value or not isinstance(value, dict | list | tuple):
        yield in_line(value, sort_keys)
        return
    if level > MOST_DEPTH:
        raise ValueError(TOO_DEEP)
    between = ",\n" + " " * level
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    start = opening + between[1:]
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
    elif isinstance(value, dict):
        for key, each in sorted(value.items()) if sort_keys else value.items():
            yield f"{start}{in_line({key: 0}, False)[1:-4]}: "
            yield from indented(each, sort_keys, level + 1)
            start = between
    else:
        for each in value:
            yield start
            yield from indented(each, sort_keys, level + 1)
            start = between
    yield between[1:-1] + closing


# ------------------------------------------------------------------ inside


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
