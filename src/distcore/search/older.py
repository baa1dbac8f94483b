"""Other spellings of the `hyperopt` section: Ludwig's older ones, and what its examples write,
turned into today's."""

from __future__ import annotations

from typing import get_args

from distcore.search.folders import SECTION
from distcore_core.config.document import Document, KeyPath
from distcore_core.config.upgrade import Upgrade
from distcore_core.errors import ConfigError
from distcore_search.objective import NAMES
from distcore_search.options import Split

HERE: KeyPath = (SECTION,)
EXECUTOR: KeyPath = (SECTION, "executor")
BEFORE_RAY = ("serial", "parallel", "fiber")
"""Ludwig's executors before 0.5. It turns them into `ray`; they ran on one machine."""


def upgrade_section(document: Document) -> list[str]:
    """Change the section in place; a note for each kind of change.

    Raises ConfigError if two options say two things."""
    work = Upgrade(document)
    work.wrap(EXECUTOR)
    _sampler(work)
    _executor(work)
    _metric(work)
    return list(work.notes)


def _sampler(work: Upgrade) -> None:
    """`sampler`, from before Ludwig 0.5."""
    path: KeyPath = (*HERE, "sampler")
    work.move((*path, "search_alg"), (*HERE, "search_alg"))
    for name in ("num_samples", "scheduler"):
        work.move((*path, name), (*EXECUTOR, name))
    work.drop(
        path, "`search_alg` says how trials are chosen, and Ludwig reads no more of it either"
    )


def _executor(work: Upgrade) -> None:
    work.move((*EXECUTOR, "search_alg"), (*HERE, "search_alg"))
    executor = work.section(EXECUTOR)
    kind = executor.get("type")
    if kind not in BEFORE_RAY:
        return
    if kind == "serial":
        executor.setdefault("max_concurrent_trials", 1)
    work.move((*EXECUTOR, "num_workers"), (*EXECUTOR, "max_concurrent_trials"))
    work.drop(
        (*EXECUTOR, "type"),
        f"{kind} is an executor of older Ludwigs; the backend's is taken, else local",
    )


def _metric(work: Upgrade) -> None:
    """`metric: validation.combined.loss` is a split, an output feature and a metric, each of
    which may be left out."""
    path: KeyPath = (*HERE, "metric")
    stated = work.at(path)
    if not isinstance(stated, str) or "." not in stated:
        return
    before, _, metric = stated.rpartition(".")
    split, feature = _split_and_feature(work, before)
    section, source_map = work.section(HERE), work.document.source_map
    for name, value in (("split", split), ("output_feature", feature)):
        given = section.get(name)
        same = isinstance(given, str) and NAMES.get(given, given) == NAMES.get(value, value)
        if not value or same:
            continue
        if given is not None:
            message = (
                f"{stated!r} says {name} {value!r}, but {name} is {given!r}; write metric: "
                f"{metric} alone"
            )
            raise ConfigError([source_map.issue(path, message)], work.document.source)
        section[name] = value
        source_map.follow(value, path, (*HERE, name))
    section["metric"] = metric
    words = ", ".join(
        f"{name} {section[name]}" for name in ("split", "output_feature") if name in section
    )
    work.note(path, f"`hyperopt.metric: {stated}` is read as metric {metric}, {words}")


def _split_and_feature(work: Upgrade, before: str) -> tuple[str, str]:
    """What stands before the metric's name; "" if one of the two does not. Feature names may
    have dots."""
    outputs = work.at(("output_features",))
    listed = outputs if isinstance(outputs, list) else []
    names = [each.get("name") for each in listed if isinstance(each, dict)]
    first, _, rest = before.partition(".")
    return (first, rest) if first in get_args(Split) and before not in names else ("", before)
