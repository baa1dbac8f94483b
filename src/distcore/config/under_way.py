"""A document while it is read: its values, and the mistakes found so far."""

from __future__ import annotations

from typing import Any

from distcore_core.config.document import Document, KeyPath
from distcore_core.errors import ConfigIssue


class DocumentUnderWay:
    """Whoever reads a part of a config takes its values from here and tells here what is wrong."""

    def __init__(self, document: Document) -> None:
        self.values = document.values
        self.document = document
        self.source_map = document.source_map
        self.issues: list[ConfigIssue] = []

    def wrong(self, path: KeyPath, message: str) -> None:
        """Note a mistake, with the line of what was written at the path."""
        self.issues.append(self.source_map.issue(path, message))

    def mapping(self, path: KeyPath, value: Any) -> dict[str, Any]:
        if value is None or isinstance(value, dict):
            return value or {}
        self.wrong(path, f"should be a mapping (`key: value` lines), not {kind_of(value)}")
        return {}

    def text(self, path: KeyPath, value: Any) -> str | None:
        """A name. What YAML took for a number or a boolean is the text that was written."""
        if value is not None and not isinstance(value, str):
            value = self.document.raw.get(path, value)
        if isinstance(value, str):
            if value.strip():
                return value
            self.wrong(path, "is empty; give a name")
        elif value is not None:
            self.wrong(path, f"should be text, not {kind_of(value)}; put it in quotes")
        return None


def kind_of(value: Any) -> str:
    """What a value is, in words for an error."""
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a mapping",
    }
    return names.get(type(value), "nothing" if value is None else f"a {type(value).__name__}")
