"""A trial's parameters put into the config, before any default is filled in: dotted paths to
where they lie."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from distcore.config.overrides import OLDER
from distcore_core.config.document import KeyPath
from distcore_core.config.issues import nearest

SECTIONS = ("trainer", "combiner", "preprocessing", "defaults", "model", "random_seed")
"""Sections that a search may change."""

ROLES = ("input_features", "output_features")

WHOLE = "."
"""Ludwig's name for the config itself; its values are mappings of sections."""

Values = dict[str, Any]


def substitute(values: Values, parameters: Mapping[str, Any]) -> Values:
    """The config's values with the parameters in them; the given values stay as they are. What
    names a section comes before what names an option in it, so that each trial has the option's
    value, which is the one that is shown.

    A mapping is merged into the section it names, unless its `type` is another one: then it
    replaces the section. Raises ValueError for a parameter that names nothing (see `target`), or
    a part of a list."""
    made = copy.deepcopy(values)
    targets = {name: target(values, name) for name in parameters}
    for name in sorted(parameters, key=lambda name: len(targets[name])):
        value = parameters[name]
        *path, last = targets[name] or ("",)
        if name == WHOLE:
            _merge_whole(made, value)
            continue
        section: Any = made
        for part in path:
            section = section[part] if isinstance(part, int) else _inside(section, part)
            if isinstance(section, list) and part not in ROLES:
                raise ValueError(
                    f"{part!r} is a list, which is searched as a whole: use choice, with lists as "
                    "its categories"
                )
        _put(section, last, value)
    return made


def target(values: Values, name: str) -> KeyPath:
    """Where in the config a parameter lies; () for the config itself.

    Raises ValueError, saying what is right, for a name that is neither a feature's nor a
    section's."""
    if name == WHOLE:
        return ()
    features = _features(values)
    found = max(
        (each for each in features if name == each or name.startswith(f"{each}.")),
        key=len,
        default=None,
    )
    first, _, rest = name.partition(".")
    first = OLDER.get(first, first)
    if found == first and first in SECTIONS:
        raise ValueError(
            f"is both a feature and a section of the config; rename the feature {found!r}"
        )
    if found is not None:
        rest = name[len(found) + 1 :]
        return (*features[found], *rest.split(".")) if rest else features[found]
    if first == "backend":
        return _of_backend(rest)
    if first in ROLES:
        raise ValueError(
            f"begin with the feature's name, such as {next(iter(features), 'age')}.encoder.type"
        )
    if first not in SECTIONS:
        raise ValueError(
            f"{first!r} is neither a feature nor a section of the config; "
            f"{nearest(first, _known(values))}"
        )
    return (first, *rest.split(".")) if rest else (first,)


def _of_backend(rest: str) -> KeyPath:
    """Options of the trainer alone, such as the leaves of its trees."""
    trainer, _, option = rest.partition(".")
    if trainer != "trainer" or option in ("", "type"):
        raise ValueError(
            "says where a model is trained, not which one; it is not searched. Set it in "
            "`backend`. Options of the trainer are: backend.trainer.<option>"
        )
    return ("backend", trainer, *option.split("."))


def _known(values: Values) -> list[str]:
    return [*SECTIONS, *_features(values)]


def _features(values: Values) -> dict[str, KeyPath]:
    return {
        feature["name"]: (role, index)
        for role in ROLES
        for index, feature in enumerate(values.get(role) or [])
        if isinstance(feature, Mapping) and isinstance(feature.get("name"), str)
    }


def _inside(section: Any, part: str) -> Any:
    """The mapping under a key, made if there is none; `encoder: dense` becomes
    `encoder: {type: dense}`."""
    found = section.get(part)
    if not isinstance(found, dict | list):
        section[part] = {"type": found} if isinstance(found, str) else {}
    return section[part]


def _put(section: Any, key: Any, value: Any) -> None:
    value = copy.deepcopy(value)
    there = section[key] if isinstance(key, int) else section.get(key)
    if isinstance(value, dict) and isinstance(there, dict) and _same_type(value, there):
        for inner, each in value.items():
            _put(there, inner, each)
    else:
        section[key] = value


def _same_type(value: Values, there: Values) -> bool:
    """Whether nothing says that one is of another type than the other."""
    return None in (value.get("type"), there.get("type")) or bool(value["type"] == there["type"])


def _merge_whole(made: Values, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(
            "the parameter `.` is the whole config, so each of its values is a mapping of sections"
        )
    for section, each in value.items():
        if section not in SECTIONS:
            raise ValueError(
                f"{section!r} is no section that is searched; {nearest(section, SECTIONS)}"
            )
        _put(made, section, each)
