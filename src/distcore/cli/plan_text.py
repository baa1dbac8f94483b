"""A plan as lines for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from distcore_core.contracts import JSON, SPLITS
from distcore_data.figures import duration, human_bytes, milliseconds, several
from distcore_data.printable import listed, printable
from distcore_data.table import table

WIDTH = 12
"""Columns of the first word."""

NAMED = 50
"""Columns of the data that are named; `--json` has all of them."""


def render(plan: JSON) -> str:
    """The text of what `distcore.plan` gives."""
    lines = [
        *_said("config", f"{plan['config']}, seed {plan['random_seed']}"),
        *_backend(plan["backend"]),
        *_dataset(plan["dataset"]),
        *_cache(plan["cache"]),
        *_training(plan["training"], plan["dataset"]["splits"]["exact"]),
    ]
    lines += _cost(plan["cost"])
    for each in plan["notes"]:
        lines += _said("note", each)
    rows = [
        [each[name] for name in ("role", "name", "distribution", "version", "why")]
        for each in plan["plugins"]
    ]
    lines += ["", table([("ROLE", "NAME", "DISTRIBUTION", "VERSION", "WHY"), *rows])]
    return "\n".join([*lines, *_workers(plan["cost"]["workers"])])


def _said(word: str, text: str) -> Iterator[str]:
    """The word in front of the text's first line, the others beneath it."""
    text = printable(text)
    for number, line in enumerate(textwrap.wrap(text, 120 - WIDTH, break_long_words=False) or [""]):
        yield f"{word if number == 0 else '':<{WIDTH}}{line}"


def _backend(backend: JSON) -> Iterator[str]:
    yield from _said("backend", f"{backend['name']}: {backend['reason']}")
    has = backend["resources"]
    parts = [
        _count(has["cpus"], "CPU"),
        _count(has["gpus"], "GPU"),
        _count(has["nodes"], "machine"),
    ]
    if has["memory_bytes"]:
        parts.append(f"{human_bytes(has['memory_bytes'])} of memory free")
    yield from _said("", ", ".join(parts))
    for each in backend["detected"]:
        yield from _said("", f"detected {each['backend']}: {each['reason']}")


def _dataset(dataset: JSON) -> Iterator[str]:
    names = ", ".join(f"{name} {path}" for name, path in dataset["names"].items())
    size = "" if dataset["bytes"] is None else f", {human_bytes(dataset['bytes'])}"
    yield from _said("data", names)
    yield from _said("", f"{_about(dataset['rows']['count'], dataset['rows']['exact'])} rows{size}")
    columns = list(dataset["columns"])
    yield from _said("reads", f"{_count(len(columns), 'column')}: {listed(columns, NAMED)}")
    splits = dataset["splits"]
    if splits["train"] is None:
        yield from _said(
            "splits", f"{dataset['split']}: the rows of each are known once the column is read"
        )
        return
    counts = ", ".join(f"{_about(splits[split], splits['exact'])} {split}" for split in SPLITS)
    yield from _said("splits", f"{dataset['split']}: {counts}")


def _cache(cache: JSON) -> Iterator[str]:
    place = f"{cache['directory']}/{cache['key']}"
    if cache["state"] == "hit":
        yield from _said("cache", f"hit: {place} ({human_bytes(cache['bytes'])}) is used as it is")
        return
    why = "miss" if cache["state"] == "miss" else "damaged"
    text = f"{why}: {place} would be built, about {human_bytes(cache['bytes'])}"
    if cache["free_bytes"] is not None:  # nobody knows of a bucket
        text += f"; {human_bytes(cache['free_bytes'])} are free"
    yield from _said("cache", text)


def _training(training: JSON, exact: bool) -> Iterator[str]:
    """Whatever the trainer tells, in its order; those with batches and steps in a sentence."""
    facts = {
        name: value for name, value in training.items() if name != "notes" and value is not None
    }
    if {"batch_size", "effective_batch_size", "steps", "steps_per_epoch"} <= set(facts):
        about = "" if exact else "about "
        batch = f"batches of {facts['batch_size']}"
        if facts["effective_batch_size"] != facts["batch_size"]:
            batch += f" ({facts['effective_batch_size']} rows in all a step)"
        yield from _said(
            "training",
            f"{_count(facts['workers'], 'worker')}, {batch}, {about}{facts['steps_per_epoch']:,} "
            f"steps an epoch, {about}{facts['steps']:,} steps in {facts['epochs']:g} epochs, "
            f"learning rate {facts['learning_rate']:g}, precision {facts['precision']}",
        )
        return
    yield from _said(
        "training",
        ", ".join(f"{name.replace('_', ' ')}: {_shown(value)}" for name, value in facts.items()),
    )


def _cost(cost: JSON) -> Iterator[str]:
    """A line a stage: about how long, and how much memory."""
    for number, each in enumerate(cost["stages"]):
        of = f" ({each['of']})" if each["of"] else ""
        text = f"{each['stage']} about {duration(each['seconds'], rough=True)}{of}"
        if each["memory_bytes"]:
            text += f", about {human_bytes(each['memory_bytes'])} of memory"
        yield from _said("takes" if number == 0 else "", text)
    if cost["why"]:
        yield from _said("" if cost["stages"] else "takes", cost["why"])


def _workers(found: list[JSON]) -> Iterator[str]:
    """What a step costs among so many workers, as a table."""
    if not found:
        return
    header = ("WORKERS", "ROWS A STEP", "MS A STEP", "ROWS/S", "SENT BY A RANK", "COMMUNICATION")
    rows = [
        (
            f"{each['workers']:,}",
            f"{each['rows_per_step']:,}",
            milliseconds(each["step_seconds"]).removesuffix(" ms"),
            f"{each['rows_per_second']:,.0f}",
            f"{human_bytes(each['sent_bytes'])} in {each['messages']:,} messages",
            f"{100 * each['communication']:.0f} %",
        )
        for each in found
    ]
    yield from ("", table([header, *rows]))


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _about(count: int, exact: bool) -> str:
    return f"{'' if exact else 'about '}{count:,}"


def _count(number: int, what: str) -> str:
    return several(number, what) if number else f"no {what}s"
