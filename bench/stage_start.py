"""Start-up: what a command costs before it does anything.

Wall and processor milliseconds of whole processes, in turn. The value is the median over rounds of
the difference to `python -c pass`; importing torch alone is there for scale.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from measure import Comparison, run, say
from results import Row, at_most
from setting import CONFIG, Bench

TITLE = "command lines"


def measure(bench: Bench) -> list[Row]:
    program, python = str(Path(bench.plain).with_name("distcore")), bench.plain
    commands: dict[str, Sequence[str]] = {
        "python -c pass": [python, "-c", "pass"],
        "distcore --help": [program, "--help"],
        "distcore --version": [program, "--version"],
        "distcore train --help": [program, "train", "--help"],
        "distcore plugins": [program, "plugins"],
        "distcore schema": [program, "schema"],
        "distcore plan": [
            program,
            "plan",
            "--config",
            str(CONFIG),
            "--dataset",
            str(bench.csv(1000)),
        ],
        "python -c 'import torch'": [python, "-c", "import torch"],
    }
    found, rounds = Comparison(), bench.pick(15, 3)
    for number in range(-1, rounds):  # the first round fills the page cache and writes .pyc files
        for name in list(commands) if number % 2 else reversed(list(commands)):
            figures = run(commands[name])
            if number >= 0:
                found.add(name, figures)
    bare, *others = commands
    for name in commands:
        say(f"  {name}: {1000 * found.median(name, 'wall'):.0f} ms")
    return [line(found, name, bare) for name in others]


def line(found: Comparison, name: str, bare: str) -> Row:
    pairs = list(zip(found.runs[name], found.runs[bare], strict=True))
    more = [1000 * (mine["wall"] - theirs["wall"]) for mine, theirs in pairs]
    cpu = [1000 * (mine["cpu"] - theirs["cpu"]) for mine, theirs in pairs]
    target = at_most(60) if name == "distcore --help" else None
    value = statistics.median(more)
    return Row(
        name, "ms", 1000 * found.median(name, "wall"), bare, 1000 * found.median(bare, "wall"),
        value, min(more), max(more), "ms more", str(target or ""), target.met(value) if target else None,
        len(pairs), found.others(name, bare), f"{statistics.median(cpu):.0f} ms more of processor time",
    )  # fmt: skip
