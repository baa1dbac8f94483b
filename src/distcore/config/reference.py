"""The config reference in Markdown, from the config's JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from distcore_core.contracts import JSON

INTRODUCTION = """\
# Config reference

Written by `make docs` from the models that validate configs; the same models make
`distcore schema`. Names and defaults are Ludwig's. An option that is not here is an error that
names the nearest one; an option of Ludwig's that is not carried out is an error that says so,
unless it stands at Ludwig's default.

A plugin is chosen by its name (`processor: dask`) or by a mapping with its name and its options
(`processor: {type: dask, parallelism: 100}`).
"""


def render(schema: JSON) -> str:
    """The whole reference; plugins that are not installed are not in it."""
    return "\n".join([INTRODUCTION, *_Pages(schema).lines()]).rstrip() + "\n"


class _Pages:
    def __init__(self, schema: JSON) -> None:
        self.schema = schema
        self.defs: JSON = schema["$defs"]

    def lines(self) -> Iterator[str]:
        sections = self.schema["properties"]
        for name, section in sections.items():
            if name in ("input_features", "output_features"):
                yield from self._features(name, section)
            elif name == "defaults":
                yield from _heading(2, "defaults", section)
                yield (
                    "For each feature type: `preprocessing` and `encoder` of its inputs, `decoder` "
                    "and `loss` of its "
                )
                yield (
                    "outputs, under each feature's own options. Types: "
                    + _code_list(section["properties"])
                    + ".\n"
                )
            else:
                yield from self._section(2, name, section)

    def _features(self, name: str, section: JSON) -> Iterator[str]:
        yield from _heading(2, name, section)
        yield from self._table(section["items"]["properties"])
        for case in section["items"]["allOf"]:
            kind = case["if"]["properties"]["type"]["const"]
            yield from self._section(3, f"{name} ({kind})", case["then"])

    def _section(self, level: int, title: str, section: JSON) -> Iterator[str]:
        """A heading, a table of options, and a section for each option that has options itself."""
        target = self._target(section)
        cases = self._cases(section)
        if cases:
            yield from _heading(level, title, section)
            shared = self._properties(section)
            yield "Types: " + _code_list(kind for kind, _ in cases) + ".\n"
            if shared:
                yield from self._table(shared)
            for name, inner in shared.items():
                yield from self._nested(level + 1, f"{title}.{name}", inner)
            for kind, inner in cases:
                if self._properties(inner):
                    yield from self._section(level + 1, f"{title} ({kind})", inner)
            return
        yield from _heading(level, title, {**target, **section})
        properties = self._properties(section)
        if not properties:
            default = _default(section)
            yield f"{_type(section, self.defs)}{'; default ' if default else ''}{default}.\n"
            return
        yield from self._table(properties)
        for name, inner in properties.items():
            yield from self._nested(level + 1, f"{title}.{name}", inner)

    def _nested(self, level: int, title: str, section: JSON) -> Iterator[str]:
        if self._cases(section) or self._properties(section):
            yield from self._section(min(level, 5), title, section)
            return
        items = self._target(section.get("items", {}))
        for each in (
            items,
            *[self._target(part.get("items", {})) for part in section.get("anyOf", [])],
        ):
            if each.get("properties"):
                yield from self._section(min(level, 5), f"{title}[ ]", each)

    def _cases(self, section: JSON) -> list[tuple[str, JSON]]:
        """What a `type` chooses between."""
        for part in (section, *section.get("anyOf", [])):
            if "discriminator" in part:
                kinds = sorted(part["discriminator"]["mapping"].items())
                return [(kind, {"$ref": ref}) for kind, ref in kinds]
            if "allOf" in part:
                named = [case for case in part["allOf"] if "properties" in case["if"]]
                return [(case["if"]["properties"]["type"]["const"], case["then"]) for case in named]
        return []

    def _properties(self, section: JSON) -> JSON:
        target = self._target(section)
        for part in (target, *[self._target(each) for each in target.get("anyOf", [])]):
            if "properties" in part:
                return dict(part["properties"])
        return {}

    def _target(self, section: JSON) -> JSON:
        """What a `$ref` points at."""
        while "$ref" in section:
            section = self.defs[section["$ref"].removeprefix("#/$defs/")]
        return section

    def _table(self, properties: JSON) -> Iterator[str]:
        yield "| option | type | default | meaning |"
        yield "|---|---|---|---|"
        for name, each in properties.items():
            meaning = each.get("description") or self._target(each).get("description", "")
            meaning = " ".join(meaning.split()).replace("|", "\\|")
            yield f"| `{name}` | {_type(each, self.defs)} | {_default(each)} | {meaning} |"
        yield ""


def _heading(level: int, title: str, section: JSON) -> Iterator[str]:
    yield f"{'#' * level} {title}\n"
    if section.get("description"):
        yield section["description"] + "\n"


def _type(section: JSON, defs: JSON) -> str:
    """A type in a few words: `integer ≥ 1 or auto`."""
    if "enum" in section:
        return _code_list(section["enum"])
    if "const" in section:
        return f"`{_word(section['const'])}`"
    if "discriminator" in section or "$ref" in section or "properties" in section:
        return "section"
    parts = section.get("anyOf") or section.get("oneOf")
    if parts:
        return " or ".join(dict.fromkeys(_type(each, defs) for each in parts))
    kind = section.get("type", "any")
    words = " or ".join(kind) if isinstance(kind, list) else str(kind)
    words = words.replace("object", "mapping").replace("array", "list")
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {_bound(section[key])}" for key, sign in bounds.items() if key in section]
    return " ".join([words, ", ".join(limits)]).strip()


def _bound(value: float) -> str:
    """With all its digits, if it is a whole number."""
    return str(value) if isinstance(value, int) else f"{value:g}"


def _default(section: JSON) -> str:
    if "default" not in section:
        return ""
    default = section["default"]
    if isinstance(default, dict) and len(json.dumps(default)) > 40:
        return "as below"
    return f"`{_word(default)}`"


def _word(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def _code_list(words: Any) -> str:
    return ", ".join(f"`{_word(each)}`" for each in words)
