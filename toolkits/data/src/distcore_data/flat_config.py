"""A config as a flat list of its options, each named as `--set` names it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

PLAIN = re.compile(r"[^.\[\]=\s]+")
"""A name that `--set` takes behind a point; others stand in brackets."""

ORDER = " (their order)"
"""The end of the path under which the names of a list's members are told."""

FEW = 3
"""Names that are shown, though they stand in the same order."""


def flattened(value: Any, path: str = "", place: str = "") -> Iterator[tuple[str, str, Any]]:
    """(path, place, value) of everything in a config that is no mapping and no list of mappings.

    A path has the names of a list's members, `input_features.age.type`, or their numbers if not
    each has one of its own; a place, as the receipt has lines by it, always their numbers. The
    names themselves are told once for each list, as `input_features (their order)`, which has no
    place.
    """
    if isinstance(value, Mapping) and (value or not path):
        for name, each in value.items():
            dot = "." if path else ""
            yield from flattened(each, f"{path}{dot}{name}", f"{place}{dot}{name}")
    elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        named = len({str(each["name"]) for each in value if "name" in each}) == len(value)
        if named:
            yield f"{path}{ORDER}", "", [each["name"] for each in value]
        for number, each in enumerate(value):
            inner = _part(str(each["name"])) if named else f"[{number}]"
            others = {name: one for name, one in each.items() if name != "name"} if named else each
            yield from flattened(others, f"{path}{inner}", f"{place}[{number}]")
    else:
        yield path, place, value


def apart(path: str, values: Sequence[Any]) -> list[Any]:
    """What one option is in several configs, to be shown; of many names in another order those from
    the first on that differs."""
    lists = [each for each in values if isinstance(each, list)]
    if not path.endswith(ORDER) or len(lists) < 2:
        return [*values]
    rows = enumerate(zip(*lists, strict=False))
    alike = next((at for at, row in rows if len({*row}) > 1), min(map(len, lists)))
    return [
        ["…", *each[alike:]] if alike > FEW and isinstance(each, list) else each for each in values
    ]


def _part(name: str) -> str:
    return f".{name}" if PLAIN.fullmatch(name) else f"[{name}]"
