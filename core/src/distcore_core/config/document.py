"""A config before it is understood: its values, and where each was written, followed when values
move."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from distcore_core.config.issues import dotted, without_passwords
from distcore_core.errors import ConfigIssue

KeyPath = tuple[str | int, ...]
"""("input_features", 2, "type"): keys of mappings and positions in lists."""

STEP = re.compile(r"[^.\[\]]+|\[\d+\]")


class Place(NamedTuple):
    """Where a value was written: 1-based line (0: there is no text) and the path that the user
    wrote it under."""

    line: int
    path: KeyPath


class SourceMap(dict[KeyPath, Place]):
    """The place of every path, followed when values move (an older spelling, a default merged
    into a feature)."""

    def find(self, path: KeyPath) -> Place:
        """The place of the path, or of the nearest value around it."""
        for end in range(len(path), -1, -1):
            near = self.get(path[:end])
            if near is not None:
                return Place(near.line, near.path + path[end:])
        return Place(0, path)

    def follow(self, value: Any, old: KeyPath, new: KeyPath) -> None:
        """The value that now lies at `new`, and whatever is in it, was written at `old`."""
        self[new] = self.find(old)
        inside = (
            value.items()
            if isinstance(value, dict)
            else enumerate(value)
            if isinstance(value, list)
            else ()
        )
        for key, each in inside:
            self.follow(each, (*old, key), (*new, key))

    def issue(self, path: KeyPath, message: str) -> ConfigIssue:
        line, shown = self.find(path)
        return ConfigIssue(line, dotted(*shown), without_passwords(message))


@dataclass(frozen=True)
class Document:
    """A config before it is understood.

    source: what to call it in errors. raw: the text of each plain scalar that YAML did not read as
        a string.
    """

    values: dict[str, Any]
    source: str = "config"
    source_map: SourceMap = field(default_factory=SourceMap)
    raw: dict[KeyPath, str] = field(default_factory=dict)
