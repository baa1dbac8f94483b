"""Write docs/hooks.md, docs/contracts.md and docs/config.md from the code; `--check` only says
whether they are up to date."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from distcore.config.schema import reference_markdown
from distcore_core import contracts, events, hooks
from distcore_core.events import EVENTS
from distcore_core.registry.index import all_offers
from distcore_core.registry.manager import Plugins

HERE = Path(__file__).parent
MEMBERS = (
    "distcore",
    "distcore-data",
    "distcore-torch",
    "distcore-search",
    "distcore-report",
    "distcore-local",
    "distcore-parquet",
    "distcore-tabular",
    "distcore-optuna",
    "distcore-lightgbm",
    "distcore-xgboost",
    "distcore-dask",
    "distcore-ray",
    "distcore-modin",
    "distcore-hdf5",
    "distcore-tfrecord",
    "distcore-horovod",
)
"""Distributions that the references describe; whatever else is installed here is left out."""


def hook_reference() -> str:
    """Every hook with its signature and docstring, in the order of hooks.py and events.py."""
    parts = [
        "# Hook reference\n",
        "Written by `make docs` from `distcore_core/hooks.py` and `events.py`.\n",
        inspect.getdoc(hooks) or "",
        "",
    ]
    for name, function in (vars(hooks) | vars(events)).items():
        if not hasattr(function, f"{hooks.PROJECT}_spec"):
            continue
        kind = (
            "event"
            if name in EVENTS
            else "factory"
            if name.startswith("distcore_make_")
            else "question"
        )
        signature = str(inspect.signature(function)).replace("'", "")
        parts += [
            f"## {name}",
            f"*{kind}*\n",
            f"```python\n{name}{signature}\n```\n",
            markdown(function),
            "",
        ]
    return "\n".join(parts).rstrip() + "\n"


def contract_reference() -> str:
    """Every class of the contracts with its members, room by room."""
    parts = [
        "# Contract reference\n",
        "Written by `make docs` from `distcore_core/contracts`. All of it is imported from "
        "`distcore_core.plugin`; [plugins.md](plugins.md) says how to write a plugin, "
        "[hooks.md](hooks.md) which hooks make one.\n",
    ]
    rooms: dict[str, list[type]] = {}
    for name in contracts.__all__:
        made = getattr(contracts, name)
        if inspect.isclass(made):
            rooms.setdefault(made.__module__, []).append(made)
    for room, classes in rooms.items():
        parts += [f"## {inspect.getdoc(sys.modules[room])}\n"]
        for each in classes:
            parts += [f"### {each.__name__}\n", *_attributes(each), markdown(each), ""]
            for name, member in vars(each).items():
                parts += _member(name, member, each)
    return "\n".join(parts).rstrip() + "\n"


def _attributes(of: type) -> list[str]:
    found = [
        f"{name}: {kind}".replace("'", '"')
        for name, kind in inspect.get_annotations(of).items()
        if not name.startswith("_")
    ]
    return ["```python", *found, "```\n"] if found else []


def _member(name: str, member: Any, owner: type) -> list[str]:
    if name.startswith("_"):
        return []
    if isinstance(member, property):
        returned = inspect.signature(member.fget).return_annotation  # type: ignore[arg-type]
        return [f"```python\n{name}: {returned}\n```\n", markdown(member), ""]
    if isinstance(member, classmethod | staticmethod):
        member = member.__func__
    if not inspect.isfunction(member) or (dataclasses.is_dataclass(owner) and not member.__doc__):
        return []
    signature = str(inspect.signature(member)).replace("'", "")
    return [f"```python\n{name}{signature}\n```\n", markdown(member), ""]


def markdown(documented: Any) -> str:
    """A docstring whose sections (`Args:`, `Returns:`, `Raises:`, …) are lists."""
    lines: list[str] = []
    within = False
    for line in _own_lines(documented).splitlines():
        section = re.fullmatch(r"(Args|Returns|Raises|Attributes):", line)
        item = re.match(r"    (\S.*)", line)
        if section:
            within = True
            lines += [f"**{section[1]}**", ""]
        elif within and item:
            named = re.match(r"(\w+(?:, \w+)*|\*\*?\w+): (.*)", item[1])
            lines.append(f"- `{named[1]}`: {named[2]}" if named else f"- {item[1]}")
            if not named and len(lines) > 1 and lines[-2].startswith(("- ", "  ")):
                lines[-1] = f"  {item[1]}"
        elif within and line.startswith("        "):
            lines.append(f"  {line.strip()}")
        elif attribute := re.match(r"([a-z_]+(?:, [a-z_]+)*): (.*)", line):
            lines.append(f"- `{attribute[1]}`: {attribute[2]}")
        elif item and lines and lines[-1].startswith(("- ", "  ")):
            lines.append(f"  {item[1]}")
        else:
            within = within and not line
            lines.append(line)
    return "\n".join(lines)


def _own_lines(documented: Any) -> str:
    """The docstring; of a class, behind its first paragraph, each attribute begins a line, where
    several share one."""
    text = inspect.getdoc(documented) or ""
    if not inspect.isclass(documented):
        return text
    names = "|".join({*inspect.get_annotations(documented), *vars(documented)})
    first, blank, rest = text.partition("\n\n")
    return first + blank + re.sub(rf"[.;](?: |\n +)({names}): ", r".\n\1: ", rest)


def main() -> int:
    """Write the files, or compare them; returns the exit code."""
    foreign = {offer.distribution for offers in all_offers().values() for offer in offers} - set(
        MEMBERS
    )
    pages = {
        "hooks.md": hook_reference(),
        "contracts.md": contract_reference(),
        "config.md": reference_markdown(Plugins(foreign)),
    }
    stale = [
        name
        for name, text in pages.items()
        if not (HERE / name).exists() or (HERE / name).read_text() != text
    ]
    if "--check" in sys.argv:
        print("\n".join(f"docs/{name} is out of date; run `make docs`" for name in stale))
        return 1 if stale else 0
    for name in stale:
        (HERE / name).write_text(pages[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
