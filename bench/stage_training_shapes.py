"""Training, shape by shape and batch by batch: ours against a hand-written loop of the same network.

    python bench/stage_training_shapes.py WHO HOME CASE[,CASE…]
    (CASE: folder of HOME:rows of a batch:steps)

One process, one thread, fused Adam, gradients clipped to a norm of 0.5 (our default) by both, exact
off (`trainer.exact: false`, the default); beside it the same with `trainer.exact: true`, for the price
of exact on each shape. Ours keeps all that a run keeps: it looks for flipped bits
every tenth step, writes its ledger, and listens to signals; whole runs, no evaluation. The loop
gathers its batches from memory. Rows a second are those after the first fifth of the steps.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import handmade
from learnt_shapes import SHAPES, described, home, prepared, sections
from measure import Comparison, emit
from results import Row, at_least, row
from setting import MORE_PLUGINS, ONE_THREAD, Bench
from stage_train import figures, fitted, training

TITLE = "Training, shape by shape"
CLIP = 0.5
OURS, EXACT, HAND = "distcore", "distcore_exact", "hand"
TARGET = at_least(0.97)


class Case(NamedTuple):
    """shape: the name of one, or of its folder. batch: its rows."""

    shape: str
    batch: int
    steps: int

    @property
    def key(self) -> str:
        """What its figures are called."""
        return f"{self.shape.rpartition('_')[0] or self.shape}_{self.batch}"

    @property
    def warm(self) -> int:
        return self.steps // 5


FULL = (
    *(Case("plain", batch, steps) for batch, steps in ((32, 4000), (128, 2500), (1024, 500), (8192, 100))),
    *(Case(name, 128, steps) for name, steps in (("wide", 1500), ("categories", 1500), ("sets", 2000))),
    *(Case(name, 128, steps) for name, steps in (("text", 2000), ("cnn", 150), ("outputs", 2000))),
    *(Case(name, 1024, steps) for name, steps in (("wide", 300), ("categories", 300), ("sets", 400))),
    *(Case(name, 1024, steps) for name, steps in (("text", 400), ("outputs", 400))),
)  # fmt: skip
QUICK = (Case("plain", 32, 40), Case("plain", 128, 20), *(Case(name, 128, 20) for name in SHAPES if name != "plain"))  # fmt: skip


# ------------------------------------------------------------------ what is run


def by_hand(folder: Path, case: Case) -> dict[str, Any]:
    import handmade_shapes

    known = described(folder)
    net = handmade_shapes.network(known)
    feed = handmade_shapes.Feed(folder, case.steps, case.batch)
    loss = handmade.fit(net, feed, handmade_shapes.loss_of(known), clip=CLIP)
    return figures(feed.stamps, loss, handmade.parameters(net), case.batch, case.warm)


def ours(folder: Path, case: Case, exact: bool) -> dict[str, Any]:
    scratch = folder / "runs"
    scratch.mkdir(exist_ok=True)
    stamps = scratch / f"stamps-{os.getpid()}"
    options = {
        "train_steps": case.steps,
        "steps_per_checkpoint": case.steps,
        "batch_size": case.batch,
        "gradient_clipping": {"clipglobalnorm": CLIP},
        "exact": exact,
    }
    settings = training(str(folder / "cache"), stamps, options, **sections(folder))
    return fitted(settings, described(folder)["data"], scratch, stamps, case.batch, case.warm)


def main() -> None:
    who, at, texts = sys.argv[1], Path(sys.argv[2]), sys.argv[3].split(",")
    for text in texts:
        shape, batch, steps = text.split(":")
        case = Case(shape, int(batch), int(steps))
        folder = at / shape
        found = by_hand(folder, case) if who == HAND else ours(folder, case, exact=who == EXACT)
        emit(**{f"{case.key}_{name}": value for name, value in found.items()})


# ------------------------------------------------------------------ what is compared


def measure(bench: Bench) -> list[Row]:
    """Each case in turn; in a quick run all of them in one process of each."""
    cases = bench.pick(FULL, QUICK)
    prepared(bench, (case.shape for case in cases))
    groups = [[case] for case in cases] if not bench.quick else [cases]
    return [each for group in groups for each in compared(bench, group)]


def compared(bench: Bench, cases: Sequence[Case]) -> list[Row]:
    texts = [f"{home(bench, case.shape).name}:{case.batch}:{case.steps}" for case in cases]
    at = bench.data / "learnt"
    commands = {
        who: bench.script("stage_training_shapes.py", who, at, ",".join(texts))
        for who in (OURS, EXACT, HAND)
    }
    key, environment = f"{cases[0].key}_rows_per_second", {**ONE_THREAD, **MORE_PLUGINS}
    found = bench.compare(commands, (5, 1), key, environment)
    return [each for case in cases for each in lines(found, case)]


def lines(found: Comparison, case: Case) -> list[Row]:
    sizes, losses, steps = (
        [found.median(who, f"{case.key}_{name}") for who in (OURS, HAND)]
        for name in ("parameters", "loss", "step_ms")
    )
    assert len(set(sizes)) == 1, (case, sizes)
    title = f"{SHAPES[case.shape].title}, batches of {case.batch:,}"
    rate = (f"{case.key}_rows_per_second", "rows/s")
    plain = row(
        *(found, title, OURS, HAND, *rate, TARGET),
        peer_is="hand-written, fused Adam",
        note=f"{steps[0]:.3g} and {steps[1]:.3g} ms a step; mean losses over {case.steps} steps "
        f"{losses[0]:.4f} and {losses[1]:.4f}; {sizes[0]:,.0f} parameters each",
    )
    return [plain, row(found, f"{title}: exact", EXACT, OURS, *rate, peer_is="ours, not exact")]


if __name__ == "__main__":
    main()
