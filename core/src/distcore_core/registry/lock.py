"""A lock: the distributions that may be imported as plugins, with the sha256 of each of their
files. DISTCORE_LOCK names its file, which `distcore plugins lock` writes: in the environment, for
it must hold before a config is read, and in every process that is started."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
from collections.abc import Mapping
from hashlib import sha256
from importlib import metadata
from pathlib import Path

from distcore_core.errors import PluginBroken

VARIABLE = "DISTCORE_LOCK"
GROUPS = "distcore."  # what the name of every entry-point group of ours begins with
_digests: dict[str, dict[str, str]] = {}  # by distribution


def locked() -> Mapping[str, dict[str, str]] | None:
    """{distribution: {file: sha256}} of the lock in force; None if there is none."""
    return _read(path) if (path := os.environ.get(VARIABLE)) else None


@functools.lru_cache(maxsize=1)
def _read(path: str) -> Mapping[str, dict[str, str]]:
    try:
        given = json.loads(Path(path).read_text("utf-8"))["distributions"]
        return {name: dict(each["files"]) for name, each in given.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise PluginBroken(
            f"{path}, which {VARIABLE} names, is no lock that can be read: {error}. Remove it, "
            f"write another one by `distcore plugins lock --output {path}`, or unset {VARIABLE}."
        ) from error


def refuse_changed(distribution: str, who: str) -> None:
    """Raises PluginBroken if a lock is in force and the distribution, for people `who`, differs."""
    for anew in (False, True):  # it may have been put right since
        if (lock := locked()) is None:
            return
        then, now = lock.get(distribution, {}), files_of(distribution, anew)
        if not (changed := sorted(each for each in then | now if then.get(each) != now.get(each))):
            return
        _read.cache_clear()
    raise PluginBroken(
        f"{who} is not as {os.environ[VARIABLE]} says: {', '.join(changed[:3])}"
        f"{f' and {len(changed) - 3} more' if changed[3:] else ''} changed since it was locked. "
        "Reinstall it; if the change is meant, write the lock again with "
        f"`distcore plugins lock --output {os.environ[VARIABLE]}`."
    )


def files_of(distribution: str, anew: bool = False) -> dict[str, str]:
    """`digests_of`, as found before if not `anew`."""
    if distribution not in _digests or anew:
        _digests[distribution] = digests_of(distribution)
    return _digests[distribution]


def digests_of(distribution: str) -> dict[str, str]:
    """{file: sha256} of a distribution's entry points and of all that lies in its packages, but for
    what Python compiled. Nothing of it is imported."""
    found = metadata.distribution(distribution)
    names = [*map(str, found.files or ()), *(found.read_text("top_level.txt") or "").split()]
    names += [each.module for each in found.entry_points if each.group.startswith(GROUPS)]
    tops = set(filter(str.isidentifier, (each.split("/")[0].partition(".")[0] for each in names)))
    digests = {"entry_points.txt": sha256(repr(sorted(found.entry_points)).encode()).hexdigest()}
    for spec in map(importlib.util.find_spec, sorted(tops - {"__pycache__"})):
        roots = list((spec and spec.submodule_search_locations) or ())
        for root in map(Path, roots or filter(None, [spec.origin if spec else None])):
            for path in root.rglob("*") if root.is_dir() else [root]:
                if path.is_file() and "__pycache__" not in path.parts:
                    name = path.relative_to(root.parent).as_posix()
                    digests[name] = sha256(path.read_bytes()).hexdigest()
    return digests
