"""The surface of the plugin API as text: what `distcore_core.plugin` and each toolkit's package
export.

Names, signatures, fields with types and defaults, members of Protocols and base classes, hooks with
their parameters: a line each, so that a diff says what changed. tests/api_surface.txt holds what
API_VERSION is, and a test compares.

    python -m tools.api_surface                          print what is there now
    python -m tools.api_surface --write                  record it, once API_VERSION was raised
    python -m tools.api_surface --write --before-release    record it for a version that nobody was
                                                            given yet
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distcore_core.contracts import API_VERSION, Role
from distcore_core.hooks import PROJECT

RECORDED = Path(__file__).parent.parent / "tests" / "api_surface.txt"
MODULES = (
    "distcore_core.plugin",
    "distcore_data",
    "distcore_torch",
    "distcore_search",
    "distcore_trees",
    "distcore_testing",
)
DEPRECATED = " deprecated: "
"""After the line of a member that will go, before what it warns of."""

MINORS = 2
"""For how many minor versions a deprecated member stays."""

SHOWN = frozenset({"__init__", "__iter__", "__len__", "__getitem__", "__enter__", "__exit__"})
"""Of the members whose names begin with an underscore, those that are part of a surface."""


def surface() -> str:
    """Every line of the surface as it is now; the first line is the version."""
    lines = [f"API {API_VERSION[0]}.{API_VERSION[1]}"]
    for module in MODULES:
        package = importlib.import_module(module)
        for name in sorted(package.__all__):
            lines += [f"{module}.{line}" for line in described(name, getattr(package, name))]
    return "\n".join(lines) + "\n"


def described(name: str, value: Any) -> Iterator[str]:
    """The lines of one public name; each line stands alone."""
    if isinstance(value, type):
        yield from (f"{name}{line}" for line in _of_class(value))
    elif isinstance(value, types.ModuleType):
        yield from (f"{name}.{line}" for line in _hooks(value))
    elif inspect.isfunction(value):
        yield f"{name}{_signature(value)}{_mark(value)}"
    elif isinstance(value, Role):
        made = ", ".join(
            f"{each.name}={_shown(getattr(value, each.name))}" for each in dataclasses.fields(value)
        )
        yield f"{name} = Role({made})"
    elif name != "API_VERSION":
        yield f"{name} = {value if isinstance(value, types.GenericAlias) else _constant(value)}"


def _mark(value: Any) -> str:
    """What `typing_extensions.deprecated` says of a member; "" if it stays."""
    said = vars(value).get("__deprecated__")
    return f"{DEPRECATED}{said}" if said else ""


def _constant(value: Any) -> str:
    if isinstance(value, str | int | float | tuple | frozenset):
        return repr(sorted(value) if isinstance(value, frozenset) else value)
    if isinstance(value, types.MappingProxyType):
        return f"mapping of {', '.join(sorted(value))}"
    return str(value) if type(value).__module__ == "typing" else type(value).__name__


def _shown(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else repr(value)


def _hooks(module: types.ModuleType) -> Iterator[str]:
    for name, function in sorted(vars(module).items()):
        spec = getattr(function, f"{PROJECT}_spec", None)
        if spec is not None:
            yield f"{name}{_signature(function)}{' firstresult' if spec['firstresult'] else ''}"


def _of_class(kind: type) -> Iterator[str]:
    bases = [each.__name__ for each in kind.__bases__ if each is not object]
    flags = ""
    if dataclasses.is_dataclass(kind):
        parameters = kind.__dataclass_params__  # type: ignore[attr-defined]
        flags = "".join(f" {each}" for each in ("frozen", "order") if getattr(parameters, each))
    yield f": class({', '.join(bases)}){flags}{_mark(kind)}"
    fields = (
        {each.name: each for each in dataclasses.fields(kind)}
        if dataclasses.is_dataclass(kind)
        else {}
    )
    for name, (owner, value) in sorted(_members(kind).items()):
        if name in fields:
            yield f".{name}: {_field(fields[name])}"
        elif not (name == "__init__" and fields):
            yield f".{name}{_member(owner, name, value)}"


def _members(kind: type) -> dict[str, tuple[type, Any]]:
    """{public name: (the class that defines it, its value)}, of our own classes alone."""
    found: dict[str, tuple[type, Any]] = {}
    for owner in kind.__mro__:
        if owner.__module__.startswith("distcore"):
            for name in (*vars(owner), *vars(owner).get("__annotations__", {})):
                hidden = name.startswith("_") and (
                    name not in SHOWN or getattr(owner, "_is_protocol", False)
                )
                # pytest collects a suite's tests: which there are may change in any release.
                if (
                    not hidden
                    and not name.startswith(("test_", "pytest"))
                    and not _of_pydantic(owner, name)
                ):
                    found.setdefault(name, (owner, vars(owner).get(name, inspect.Parameter.empty)))
    return found


def _of_pydantic(owner: type, name: str) -> bool:
    """What pydantic adds to every model, and its validators."""
    return (
        name.startswith("model_")
        or type(vars(owner).get(name)).__name__ == "PydanticDescriptorProxy"
    )


def _field(field: dataclasses.Field[Any]) -> str:
    default = ""
    if field.default is not dataclasses.MISSING:
        default = f" = {field.default!r}"
    elif field.default_factory is not dataclasses.MISSING:
        default = f" = {field.default_factory.__name__}()"
    return f"{field.type}{default}{' kw_only' if field.kw_only else ''}"


def _member(owner: type, name: str, value: Any) -> str:
    annotation = vars(owner).get("__annotations__", {}).get(name)
    if annotation is not None:
        given = value if value is not inspect.Parameter.empty else _pydantic_default(owner, name)
        return f": {annotation}" + (
            "" if given is inspect.Parameter.empty else f" = {_default(given)}"
        )
    if type(value).__name__ in ("FixtureFunctionDefinition", "member_descriptor"):
        return ""  # a pytest fixture, or a slot
    if isinstance(value, property):
        return f" -> {(value.fget and value.fget.__annotations__.get('return')) or 'Any'}"
    if isinstance(value, classmethod | staticmethod):
        return f"{_signature(value.__func__)} {type(value).__name__}"
    if inspect.isfunction(value):
        return f"{_signature(value)}{_mark(value)}"
    return f" = {_default(value)}"


def _pydantic_default(owner: type, name: str) -> Any:
    field = getattr(owner, "model_fields", {}).get(name)
    if field is None or field.is_required():
        return inspect.Parameter.empty
    return field.default if field.default_factory is None else field.default_factory


def _signature(function: Any) -> str:
    parts, star = [], False
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    for number, each in enumerate(parameters):
        if each.kind is each.KEYWORD_ONLY and not star:
            parts, star = [*parts, "*"], True
        mark = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        star = star or each.kind is each.VAR_POSITIONAL
        annotation = "" if each.annotation is each.empty else f": {_annotation(each.annotation)}"
        default = "" if each.default is each.empty else f" = {_default(each.default)}"
        parts.append(f"{mark}{each.name}{annotation}{default}")
        after = parameters[number + 1].kind if number + 1 < len(parameters) else None
        if each.kind is each.POSITIONAL_ONLY and after is not each.POSITIONAL_ONLY:
            parts.append("/")
    result = (
        ""
        if signature.return_annotation is signature.empty
        else f" -> {_annotation(signature.return_annotation)}"
    )
    return f"({', '.join(parts)}){result}"


def _annotation(found: Any) -> str:
    return found if isinstance(found, str) else getattr(found, "__name__", str(found))


def _default(value: Any) -> str:
    """A default as text that is the same in every process: never an address."""
    if isinstance(value, str | int | float | bool | tuple | list | dict | types.NoneType):
        return repr(value)
    return (
        value.__name__
        if isinstance(value, type) or inspect.isfunction(value)
        else type(value).__name__
    )


# ------------------------------------------------------------------ beside what was recorded


def version_of(text: str) -> tuple[int, int]:
    """The API version that a recorded surface states in its first line."""
    major, minor = text.partition("\n")[0].removeprefix("API ").split(".")
    return int(major), int(minor)


def difference(recorded: str, now: str) -> list[str]:
    """Lines that are gone ("- …") and that came ("+ …"). One that is now deprecated is not gone."""
    before, after = recorded.splitlines()[1:], now.splitlines()[1:]
    there = set(map(_plain, after))
    gone = [f"- {line}" for line in before if _plain(line) not in there]
    return [*gone, *(f"+ {line}" for line in after if line not in before)]


def _plain(line: str) -> str:
    return line.partition(DEPRECATED)[0]


def too_soon(recorded: str, now: str) -> list[str]:
    """What is gone, and did not warn for long enough (docs/policy.md), in words."""
    found = []
    for line in difference(recorded, now):
        name, _, said = line.removeprefix("- ").partition(DEPRECATED)
        since = re.match(r"since API (\d+)\.(\d+)\b", said)
        if line.startswith("+"):
            continue
        if since is None:
            found.append(f"{name} goes without having warned.")
        elif version_of(recorded) < (int(since[1]), int(since[2]) + MINORS):
            last = f"{since[1]}.{int(since[2]) + MINORS}"
            found.append(f"{name} warns since {since[1]}.{since[2]} only: keep it in API {last}.")
    return found


def needed(recorded: str, now: str) -> tuple[int, int]:
    """The lowest version the surface may have: the next minor one if lines only came, the next
    major if any went."""
    major, minor = version_of(recorded)
    lines = difference(recorded, now)
    if any(line.startswith("-") for line in lines):
        return major + 1, 0
    return (major, minor + 1) if lines else (major, minor)


def complaint(recorded: str, now: str) -> str:
    """What is to be done about a difference, in words; "" if there is none."""
    lines = difference(recorded, now)
    if not lines and version_of(now) == version_of(recorded):
        return ""
    wanted, stated = needed(recorded, now), version_of(now)
    step = (
        f"API_VERSION in distcore_core/contracts is {stated}. Raise it to {wanted} at least (a "
        "minor version for what only came, a major one for what is gone or changed; a member that "
        "every plugin must now have is a break too), "
        if stated < wanted
        else f"API_VERSION is {stated}, as it may be. "
    )
    changed = "\n".join(f"    {line}" for line in lines)
    step += "".join(f"{each} " for each in too_soon(recorded, now))
    return (
        f"The plugin API is not what {RECORDED.name} recorded for {version_of(recorded)}:\n"
        f"{changed}\n"
        f"{step}Add a line to CHANGELOG.md and run `python -m tools.api_surface --write`."
    )


def main(arguments: list[str]) -> int:
    """Print the surface, or record it; 1 if it may not be recorded."""
    parser = argparse.ArgumentParser(description="The surface of the plugin API.")
    parser.add_argument("--write", action="store_true", help="record it")
    parser.add_argument(
        "--before-release",
        action="store_true",
        help="under the same version: nobody was given it yet",
    )
    given = parser.parse_args(arguments)
    now = surface()
    if not given.write:
        print(now, end="")
        return 0
    recorded = RECORDED.read_text(encoding="utf-8") if RECORDED.exists() else now
    if not given.before_release and version_of(now) < needed(recorded, now):
        print(complaint(recorded, now), file=sys.stderr)
        return 1
    RECORDED.write_text(now, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
