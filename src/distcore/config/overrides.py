"""`--set trainer.epochs=3`: single options of a config, given beside it and checked like
everything in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from distcore.config.yaml_document import parse
from distcore_core.config.document import Document, KeyPath, Place
from distcore_core.config.issues import nearest
from distcore_core.errors import ConfigError, ConfigIssue, UserError

STEP = re.compile(r"\.?[^.\[\]=\s]+|\[[^\[\]=]+\]")

OLDER = {"training": "trainer"}
"""Older names of sections, as in Ludwig's own older configs."""


def override(document: Document, settings: Iterable[str]) -> Document:
    """The document with each `path=value` set in it, in their order.

    Args:
        document: Changed in place.
        settings: Such as `trainer.epochs=3`, `input_features.age.type=category` (of a list, the
            member of that name) or `input_features[0].type=number`; the value is YAML.

    Raises:
        UserError: A setting is no `path=value`.
        ConfigError: The value is no YAML, or the path leads through what has no parts; other
            mistakes are found with those of the config, and told as `--set PATH`.
    """
    for setting in settings:
        where, equals, text = setting.partition("=")
        steps = STEP.findall(where)
        if not equals or not steps or "".join(steps) != where:
            raise UserError(
                f"--set {setting}: write a path and a value, such as --set trainer.epochs=3."
            )
        for names in OLDER.items():  # of the two, one that lies beside the other is left out
            if steps[0] in names and steps[0] not in document.values:
                steps[0] = next((name for name in names if name in document.values), steps[0])
        given = parse(f"value: {text}", f"--set {where}")  # it may be a secret
        _put(document, steps, given, f"--set {where}")
    return document


def _put(document: Document, steps: list[str], given: Document, shown: str) -> None:
    around: Any = document.values
    path: KeyPath = ()
    for at, step in enumerate(steps):
        key = _key(around, step, document, shown)
        path = (*path, key)
        if at == len(steps) - 1:
            break
        inner = around[key] if not isinstance(around, dict) else around.get(key)
        if inner is None:
            inner = {}
            document.source_map[path] = Place(0, (shown,))
        elif isinstance(inner, str):  # `backend: ray` is short for {type: ray}
            inner = {"type": inner}
        elif not isinstance(inner, dict | list):
            parts = "".join(steps[: at + 1])
            raise _wrong(
                document, shown, f"{parts} is {inner!r}, which has no parts. Set {parts} itself."
            )
        around[key] = inner
        around = inner
    for stale in [
        each for each in (*document.source_map, *document.raw) if each[: len(path)] == path
    ]:
        document.source_map.pop(stale, None)
        document.raw.pop(stale, None)
    around[path[-1]] = given.values["value"]
    for inside in given.source_map:
        if inside[:1] == ("value",):
            document.source_map[(*path, *inside[1:])] = Place(0, (shown, *inside[1:]))
    for inside, text in given.raw.items():
        document.raw[(*path, *inside[1:])] = text


def _key(around: Any, step: str, document: Document, shown: str) -> str | int:
    """The key of a mapping, or the place in a list: of the member of that name, or of a number in
    brackets (or without them, if no member has it as its name)."""
    name = step[1:-1] if step.startswith("[") else step.removeprefix(".")
    if not isinstance(around, list):
        return name
    names = [str(each.get("name", "")) if isinstance(each, dict) else "" for each in around]
    if name.isascii() and name.isdigit() and (step.startswith("[") or name not in names):
        if int(name) < len(around):
            return int(name)
        raise _wrong(
            document, shown, f"there is no [{name}]: the list has {len(around)}, counted from 0."
        )
    if name in names:
        return names.index(name)
    near = nearest(name, [*filter(None, names)])
    raise _wrong(document, shown, f"nothing in the list is called {name!r}; {near}")


def _wrong(document: Document, shown: str, message: str) -> ConfigError:
    return ConfigError([ConfigIssue(0, shown, message)], document.source)


def belongs_to(option: str) -> str | None:
    """The path in a config of an option that somebody gave as a flag (`epochs` → `trainer.epochs`);
    None: there is none."""
    from distcore_core.contracts import SECTION
    from distcore_core.registry.manager import Plugins

    plugins = Plugins()
    for section in ("trainer", "preprocessing"):
        model: Any = plugins.make(SECTION, section, given={}, plugins=plugins)
        if option in model.model_fields:
            return f"{section}.{option}"
    return None
