"""Rows of the results, their targets, and the two files: results.json, and results.md for
people."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from measure import Comparison


@dataclass(frozen=True)
class Target:
    """What a figure must be: at least, or at most, this number."""

    sign: str
    number: float

    def __str__(self) -> str:
        return f"{'≥' if self.sign == '>=' else '≤'} {self.number:g}"

    def met(self, value: float) -> bool:
        return value >= self.number if self.sign == ">=" else value <= self.number


def at_least(number: float) -> Target:
    return Target(">=", number)


def at_most(number: float) -> Target:
    return Target("<=", number)


@dataclass
class Row:
    """One line of the table.

    ours, theirs: medians, in `unit`. value: what the target is about: the median over rounds of
    ours/theirs (or theirs/ours, or a difference), with the smallest and largest in `low` and
    `high`. met: None if there is no target or the run was too small to judge. others: cores that
    everything else on the machine used meanwhile (median).
    """

    what: str
    unit: str
    ours: float
    peer: str = ""
    theirs: float | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    value_is: str = "ours / peer"
    target: str = ""
    met: bool | None = None
    rounds: int = 0
    others: float = 0.0
    note: str = ""
    more: dict[str, Any] = field(default_factory=dict)


def row(
    found: Comparison,
    what: str,
    ours: str,
    peer: str,
    key: str,
    unit: str,
    target: Target | None = None,
    *,
    inverse: bool = False,
    note: str = "",
    peer_is: str = "",
) -> Row:
    """A row from a comparison. inverse: the value is peer / ours ("times faster")."""
    ratios = found.ratios(peer, ours, key) if inverse else found.ratios(ours, peer, key)
    value = statistics.median(ratios)
    cpu = statistics.median(found.ratios(ours, peer, "cpu"))
    return Row(
        what,
        unit,
        found.median(ours, key),
        peer_is or peer,
        found.median(peer, key),
        value,
        min(ratios),
        max(ratios),
        "peer / ours" if inverse else "ours / peer",
        str(target or ""),
        target.met(value) if target else None,
        len(ratios),
        found.others(ours, peer),
        note,
        {"cpu_seconds_ratio": round(cpu, 3)},
    )


def shown(number: float | None) -> str:
    if number is None:
        return ""
    if number == 0:
        return "0"
    for limit, suffix in ((1e6, " M"), (1e4, " k")):
        if abs(number) >= limit:
            return (
                f"{number / float(suffix.strip().replace('M', '1e6').replace('k', '1e3')):.3g}"
                f"{suffix}"
            )
    return f"{number:.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def verdict(line: Row) -> str:
    if not line.target:
        return ""
    return "not judged" if line.met is None else "met" if line.met else "**behind**"


# ------------------------------------------------------------------ files


def merge(folder: Path, stages: dict[str, Any]) -> dict[str, Any]:
    """What is in results.json already, with these stages in place of older ones; written, and
    given back."""
    path = folder / "results.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known = {**known, **stages}
    folder.mkdir(parents=True, exist_ok=True)
    _write(path, json.dumps(known, indent=1) + "\n")
    return known


def write_table(folder: Path, stages: dict[str, Any], order: Sequence[str]) -> Path:
    """Write results.md."""
    path = folder / "results.md"
    _write(path, "\n".join(_lines(stages, [name for name in order if name in stages])) + "\n")
    return path


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [asdict(each) for each in rows]


def _write(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    os.replace(part, path)


def _lines(stages: dict[str, Any], names: Sequence[str]) -> list[str]:
    rows = {name: [Row(**each) for each in stages[name]["rows"]] for name in names}
    behind = [(name, each) for name in names for each in rows[name] if each.met is False]
    judged = sum(each.met is not None for name in names for each in rows[name])
    lines = [
        "# Every stage beside its peers and floors",
        "",
        "Written by `make bench`. Ours and the peer take turns (A B, B A, …) in one run; a value "
        "is the median over",
        "rounds of their ratio, with the smallest and largest. Absolute figures say little about "
        "another machine.",
        "`others` is how many cores everything else on the machine used meanwhile; `cpu` the ratio "
        "of processor time.",
        "",
        f"**{judged - len(behind)} of {judged} targets met.**"
        + (" Behind: " + "; ".join(f"{name}: {each.what} ({_value(each)}, {each.target})" for name, each in behind) + "."
           if behind else ""),
        "",
    ]  # fmt: skip
    for name in names:
        stage = stages[name]
        lines += [f"## {name}: {stage['title']}", "", *stage["about"].strip().splitlines(), ""]
        lines += [
            "| what | unit | ours | peer | its figure | value | target | | cpu | others |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        for each in rows[name]:
            cpu = each.more.get("cpu_seconds_ratio")
            cells = [
                each.what + (" ¹" * bool(each.note)),
                each.unit,
                shown(each.ours),
                each.peer,
                shown(each.theirs),
            ]
            cells += [
                _value(each),
                each.target,
                verdict(each),
                "" if cpu is None else f"{cpu:.2f}",
                f"{each.others:.2f}",
            ]
            lines.append("| " + " | ".join(cells) + " |")
        notes = [f"- {each.what}: {each.note}" for each in rows[name] if each.note]
        lines += [
            "",
            *([*notes, ""] if notes else []),
            f"<sub>{_conditions(stage['conditions'])}</sub>",
            "",
        ]
    return lines


def _value(each: Row) -> str:
    if each.value is None:
        return ""
    spread = (
        f" ({each.low:.3g} … {each.high:.3g})" if each.rounds > 1 and each.low is not None else ""
    )
    turned = "" if each.value_is == "ours / peer" else f" {each.value_is}"
    return f"{each.value:.3g}{spread}{turned}"


def _conditions(found: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return (
        f"{found['date']}, commit {found['commit']}, {'quick' if found['quick'] else 'full'} run "
        f"of {found['seconds']:.0f} s; {found['processor']}, {found['cores']} cores, "
        f"{found['memory_gb']:.0f} GB, {found['system']}; {versions}; load before "
        f"{found['load_before']:.2f}, after {found['load_after']:.2f}"
        + (", scheduled before everything else on a shared machine" if found.get("ahead") else "")
    )
