"""Sizes, times and numbers as people read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def human_bytes(count: float) -> str:
    """1536 → `1.5 kB`; powers of ten."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration(seconds: float, rough: bool = False) -> str:
    """`0.004 s`, `1.8 s`, `45.2 s`, `12 min 5 s`, `3 h 7 min`; rough, as an estimate is told:
    `45 s`, `12 min`, `3.1 h`."""
    if 0 < seconds < 0.05:
        return f"{seconds:.1g} s"
    if seconds < (9.95 if rough else 59.95):
        return f"{seconds:.1f} s"
    if rough and seconds < 99.5:
        return f"{seconds:.0f} s"
    if rough:
        return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def milliseconds(seconds: float) -> str:
    """`0.0125 ms`, `12.5 ms`, `1,234 ms`: three digits, or all before the point."""
    value = 1000 * seconds
    return f"{value:,.0f} ms" if value >= 99.95 else f"{value:.3g} ms"


def number(value: float, digits: int = 4) -> str:
    """`0.8025`, `1.5e-05`: so many digits; of numbers with more before the point six, `12345.7`,
    `1.23457e+06`."""
    return f"{value:.{digits if abs(value) < 10**digits - 0.5 else max(digits, 6)}g}"


def several(count: int, what: str) -> str:
    """`1 trial`, `1,200 trials`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def counted(unit: str) -> str:
    """What a round's `evaluation` and `best_evaluation` count: evaluations, or the unit of a
    trainer that has no epochs."""
    return "evaluation" if unit in ("epoch", "") else unit


def partly_scored(summary: Mapping[str, Any]) -> str:
    """Of how many rows a split's scores in a summary.json are, if not of all: `Training: 50,000
    rows, evenly spread over the split.`; else empty."""
    # One of before says how many there are only if it has a headline.
    rows = (summary.get("headline") or {}).get("rows", {})
    whole = {"training": rows.get("train", 0), **rows, **summary.get("split_rows", {})}
    return " ".join(
        f"{split.capitalize()}: {scored:,} rows, evenly spread over the split."
        for split, scored in summary.get("scored_rows", {}).items()
        if scored < whole.get(split, 0)
    )


def parameter(value: Any) -> str:
    """An option's value: a number, a text as it is, anything else as JSON."""
    if isinstance(value, float):
        return number(value)
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
