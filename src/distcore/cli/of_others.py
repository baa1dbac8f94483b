"""The commands of plugins that `distcore --help` knows nothing of, found without importing any.

Asking Python's metadata takes as long as the whole of `--help`; so the files that declare entry
points are looked through first, and it is asked only if one of them names a command.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator

GROUP = re.compile(r"^\[distcore\.commands\]\s*\n((?:(?!\[).*\n?)*)", re.MULTILINE)
NAME = re.compile(r"^\s*([^\s=#;]+)\s*=", re.MULTILINE)


def commands_of_others(known: Collection[str]) -> dict[str, str]:
    """{command: who offers it, for people} of those that are not known yet, and not blocked."""
    if not any(name not in known for name in _declared()):
        return {}
    from distcore_core.contracts import COMMAND
    from distcore_core.registry.manager import Plugins

    return {
        offer.name: f"(a command of {offer.who})"
        for offer in sorted(Plugins().offers(COMMAND.kind), key=lambda each: each.name)
        if offer.name not in known
    }


def _declared() -> Iterator[str]:
    """Names in the group `distcore.commands` of whatever is installed."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                yield from _of(os.path.join(folder, name, "entry_points.txt"))


def _of(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return
    for lines in GROUP.findall(text) if "distcore.commands" in text else ():
        yield from NAME.findall(lines)
