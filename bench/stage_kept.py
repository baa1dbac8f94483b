"""What a run keeps beside training: the ledger with its looks for flipped bits, and checkpoints.

    python bench/stage_kept.py VARIANT DATA CACHE_DIR SCRATCH STEPS

One process, one thread, the config of these benchmarks. `ledger` takes a line every ten steps, the
default, where its peer keeps none. `checkpoints` saves after every 20 steps a network with 50 MB of
weights and moments, where its peer saves nothing; a thread writes them while training goes on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from measure import emit
from results import Row, at_least, row
from setting import MORE_PLUGINS, ONE_THREAD, Bench
from stage_train import fitted, prepared, training

TITLE = "what a run keeps"

LARGE = {"combiner": {"num_fc_layers": 3, "output_size": 1400}}
"""A network of some 4.2 million parameters: three numbers of four bytes are kept of each."""

VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ledger": ({}, {}),
    "no_ledger": ({"ledger_steps": 0}, {}),
    "checkpoints": ({"steps_per_checkpoint": 20}, LARGE),
    "no_checkpoints": ({}, LARGE),
}
"""{variant: (what is changed in the section `trainer`, other sections)}."""


def main() -> None:
    variant, data, cache, scratch, count = sys.argv[1:6]
    trainer, sections = VARIANTS[variant]
    stamps = Path(scratch) / f"stamps-{os.getpid()}"
    settings = training(cache, stamps, {"train_steps": int(count), **trainer}, **sections)
    skip = {"skip_save_report"}
    if variant != "checkpoints":
        skip.add("skip_save_progress")
    emit(**fitted(settings, data, Path(scratch), stamps, warm=20, skip=skip))


def measure(bench: Bench) -> list[Row]:
    rows, steps, large = bench.pick((2_000_000, 1200, 241), (200_000, 150, 41))
    data, cache, _ = prepared(bench, rows)
    scratch = bench.data / "kept"
    scratch.mkdir(exist_ok=True)

    def among(first: str, second: str, count: int) -> Any:
        commands = {
            name: bench.script("stage_kept.py", name, data, cache, scratch, count)
            for name in (first, second)
        }
        return bench.compare(commands, (5, 1), "rows_per_second", {**ONE_THREAD, **MORE_PLUGINS})

    ledger = among("ledger", "no_ledger", steps)
    saved = among("checkpoints", "no_checkpoints", large)
    kept = 12 * saved.median("checkpoints", "parameters") / 1e6
    return [
        row(ledger, "the ledger, a line every 10 steps", "ledger", "no_ledger", "rows_per_second", "rows/s", at_least(0.99),
            peer_is="ours without"),
        row(saved, f"a checkpoint of {kept:.0f} MB every 20 steps", "checkpoints", "no_checkpoints", "rows_per_second", "rows/s",
            at_least(0.99), peer_is="ours without"),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
