"""Training, one process with one thread: batch 1024, fused Adam. Ours against a hand-written loop
on the same data.

    python bench/stage_train.py VARIANT DATA CACHE_DIR PACKED SCRATCH STEPS

Ours is `distcore_torch.training.trainer` as anyone calls it, from the config of these benchmarks;
the hand-written loop gathers batches from the packed matrix in memory, and its network has the same
layers and as many parameters. Both note when a batch is handed over, and rows a second are those
between batch 50 and the last. The loss is the mean over all steps; with the same number of steps
and other initial weights it must agree within noise.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import handmade
from measure import emit, run, say
from results import Row, at_least, row
from setting import MORE_PLUGINS, ONE_THREAD, Bench, all_training, config

TITLE = "the training loop"


def by_hand(packed: str, steps: int, bf16: bool = False, fused: bool = True) -> None:
    """The loop a careful user writes."""
    import torch

    net = handmade.network()
    feed = handmade.Feed(handmade.load(packed), steps)
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
    loss = handmade.fit(
        *(net, feed, lambda logits, target: cross_entropy(logits.float(), target)),
        fused=fused,
        bf16=bf16,
    )
    emit(**figures(feed.stamps, loss, handmade.parameters(net)))


def ours(data: str, cache: str, scratch: str, steps: int, **trainer: Any) -> None:
    """`distcore_torch.training.trainer`."""
    stamps = Path(scratch) / f"stamps-{os.getpid()}"
    options = {"train_steps": steps, "compile": False, **trainer}
    emit(**fitted(training(cache, stamps, options), data, Path(scratch), stamps))


def fitted(
    settings: dict[str, Any],
    data: str,
    scratch: Path,
    stamps: Path,
    batch: int = handmade.BATCH,
    warm: int = 50,
    skip: Collection[str] = ("skip_save_progress", "skip_save_report"),
    threads: int | None = 1,
) -> dict[str, Any]:
    """`figures` of a run of one round, whose config notes its steps in `stamps`. threads: that
    it must have had; None: any."""
    import torch
    from safetensors.torch import load_file

    import distcore

    outcome = distcore.train(
        settings,
        dataset=data,
        output_directory=str(scratch),
        skip=skip,
    )
    weights = load_file(outcome.model / "weights.safetensors")
    losses = outcome.training_statistics["training"]["combined"]["loss"]
    assert threads in (None, torch.get_num_threads())
    noted = json.loads(Path(f"{stamps}.0").read_text())
    return figures(
        *(noted, losses[-1], sum(each.numel() for each in weights.values()), batch, warm)
    )


def training(
    cache: str,
    stamps: Path,
    options: dict[str, Any],
    trainer: dict[str, Any] | None = None,
    **sections: Any,
) -> dict[str, Any]:
    """The config of a run that only trains, on all rows, and notes its steps.

    options: the `trainer` section. trainer: `backend.trainer`. sections: others of the config."""
    return config(
        preprocessing=all_training(),
        trainer=options,
        backend={
            "type": "local",
            "cache_dir": cache,
            "loader": {"type": "stamped", "path": str(stamps)},
            "trainer": trainer or {"type": "local"},
        },
        **sections,
    )


def figures(
    stamps: list[float], loss: float, parameters: int, batch: int = handmade.BATCH, warm: int = 50
) -> dict[str, Any]:
    """What a loop is compared by."""
    rate = handmade.rate(stamps, batch, warm)
    return {
        "rows_per_second": rate,
        "step_ms": 1000 * batch / rate,
        "loss": loss,
        "parameters": parameters,
        "steps": len(stamps),
    }


def main() -> None:
    variant, data, cache, packed, scratch, count = sys.argv[1:7]
    steps = int(count)
    if variant == "hand":
        by_hand(packed, steps)
    elif variant == "hand_not_fused":
        by_hand(packed, steps, fused=False)
    elif variant == "hand_bf16":
        by_hand(packed, steps, bf16=True)
    elif variant == "distcore":
        ours(data, cache, scratch, steps)
    elif variant == "distcore_exact":
        ours(data, cache, scratch, steps, exact=True)
    elif variant == "distcore_bf16":
        ours(data, cache, scratch, steps, use_mixed_precision=True)
    else:
        raise SystemExit(f"no variant {variant}")


def measure(bench: Bench) -> list[Row]:
    rows, steps = bench.pick((2_000_000, 600), (200_000, 150))
    data, cache, packed = prepared(bench, rows)
    scratch = bench.data / "train"
    scratch.mkdir(exist_ok=True)
    names = ("distcore", "distcore_exact", "hand", "distcore_bf16", "hand_bf16", "hand_not_fused")
    commands = {
        name: bench.script("stage_train.py", name, data, cache, packed, scratch, steps)
        for name in names
    }
    found = bench.compare(commands, (5, 1), "rows_per_second", {**ONE_THREAD, **MORE_PLUGINS})
    sizes = {name: found.median(name, "parameters") for name in names}
    assert len(set(sizes.values())) == 1, sizes
    unit = "rows/s"
    losses = ", ".join(f"{name} {found.median(name, 'loss'):.4f}" for name in names)
    return [
        row(found, "float32", "distcore", "hand", "rows_per_second", unit, at_least(0.97), peer_is="hand-written, fused Adam",
            note=f"mean losses over {steps} steps: {losses}; {sizes['hand']:.0f} parameters each"),
        row(found, "float32 against Adam as it comes", "distcore", "hand_not_fused", "rows_per_second", unit,
            peer_is="hand-written, Adam foreach"),
        row(found, "exact (trainer.exact)", "distcore_exact", "distcore", "rows_per_second", unit, at_least(0.92),
            peer_is="ours, not exact"),
        row(found, "bf16 (use_mixed_precision)", "distcore_bf16", "hand_bf16", "rows_per_second", unit, at_least(0.97),
            peer_is="hand-written, fused Adam, bf16"),
        row(found, "bf16 against our float32", "distcore_bf16", "distcore", "rows_per_second", unit, peer_is="ours, float32"),
    ]  # fmt: skip


def prepared(bench: Bench, rows: int) -> tuple[Path, Path, Path]:
    """The data, its cache's folder and the packed file, shared with stage_ddp."""
    data = bench.parquet(rows)
    cache, packed = bench.data / "train_cache", bench.data / f"train_{rows}.i32"
    if not packed.exists():
        say("  building the cache")
        run(bench.script("stage_train.py", "--prepare", data, cache, packed))
    return data, cache, packed


def prepare() -> None:
    import distcore

    data, cache, packed = sys.argv[2:5]
    settings = config(preprocessing=all_training(), backend={"type": "local", "cache_dir": cache})
    found = distcore.preprocess(settings, dataset=data)
    handmade.pack(f"{found.directory}:{found.key}", Path(packed))
    emit(done=True)


if __name__ == "__main__":
    prepare() if sys.argv[1] == "--prepare" else main()
