"""A config on its way from older spellings to today's: what a plugin's `distcore_upgrade_config`
is made with."""

from __future__ import annotations

from typing import Any

from distcore_core.config.document import Document, KeyPath


class Upgrade:
    """A document under way to today's spellings, and the notes on what was changed."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.notes: dict[str, None] = {}

    def at(self, path: KeyPath) -> Any:
        """The value at a path, or None."""
        value: Any = self.document.values
        for part in path:
            listed = isinstance(value, list) and isinstance(part, int) and part < len(value)
            if not listed and not (isinstance(value, dict) and part in value):
                return None
            value = value[part]
        return value

    def section(self, path: KeyPath) -> dict[str, Any]:
        """The mapping at a path; an empty one, that nobody keeps, if there is none."""
        found = self.at(path)
        return found if isinstance(found, dict) else {}

    def note(self, path: KeyPath, text: str) -> None:
        line = self.document.source_map.find(path).line
        if text not in {known.split(": ", 1)[-1] for known in self.notes}:
            self.notes[f"line {line}: {text}" if line else text] = None

    def move(self, old: KeyPath, new: KeyPath, value: Any = None) -> None:
        """Give what lies at `old` its new name, or drop it if the new name is there too. value:
        what it becomes."""
        parent = self.section(old[:-1])
        if old[-1] not in parent:
            return
        taken = parent.pop(str(old[-1]))
        target = self.make(new[:-1])
        if target is None or new[-1] in target:
            self.note(old, f"`{words(old)}` was left out, for `{words(new)}` is given too")
            return
        taken = taken if value is None else value
        target[str(new[-1])] = taken
        self.document.source_map.follow(taken, old, new)
        self.note(old, f"`{words(old)}` is an older spelling of `{words(new)}`")

    def drop(self, path: KeyPath, why: str) -> None:
        parent = self.section(path[:-1])
        if path[-1] in parent:
            del parent[str(path[-1])]
            self.note(path, f"`{words(path)}` was left out: {why}")

    def wrap(self, path: KeyPath) -> None:
        """`encoder: dense` is `encoder: {type: dense}`."""
        value = self.at(path)
        if isinstance(value, str):
            self.section(path[:-1])[str(path[-1])] = {"type": value}
            self.document.source_map.follow(value, path, (*path, "type"))

    def make(self, path: KeyPath) -> dict[str, Any] | None:
        """The mapping at a path, made if there is none; None if something else is in the way."""
        value: Any = self.document.values
        for part in path:
            if isinstance(value, dict):
                if value.get(str(part)) is None:
                    value[str(part)] = {}
                value = value[str(part)]
            elif isinstance(value, list) and isinstance(part, int):
                value = value[part]
        return value if isinstance(value, dict) else None


def words(path: KeyPath) -> str:
    """A path for a note: positions in lists are left out, so that many features make one note."""
    return ".".join(str(part) for part in path if isinstance(part, str))
