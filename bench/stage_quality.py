"""Quality after 3 epochs on 200 k rows, several seeds: ROC AUC on the validation split and on 50 k
rows held out.

    python bench/stage_quality.py OUT DATA HOLDOUT SEED

The last epoch's weights are judged for the validation figure, as Ludwig's are; ours also keeps the
best epoch's, and those predict. A seed decides split, first weights and order of rows. The best
possible on these data is 0.861.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from pathlib import Path

from measure import Comparison, emit, run, say
from results import Row, Target, at_least
from setting import Bench, config
from stage_experiment import ludwig

TITLE = "quality"
SEEDS = (42, 7, 1)

REFERENCE = {"validation_roc_auc": 0.8135, "holdout_roc_auc": 0.8113}
"""Ludwig 0.17.8's, one seed, from another machine; used if Ludwig is not installed."""


def main() -> None:
    import distcore

    out, data, holdout, seed = (
        Path(sys.argv[1]) / sys.argv[4],
        sys.argv[2],
        sys.argv[3],
        int(sys.argv[4]),
    )
    settings = config(backend={"type": "local", "cache_dir": str(out / "cache")})
    outcome = distcore.experiment(
        settings, dataset=data, output_directory=str(out), random_seed=seed
    )
    history = outcome.training_statistics["validation"]["target"]["roc_auc"]
    found = distcore.evaluate(outcome.model, holdout, output_directory=str(out / "holdout"))
    shutil.rmtree(out)
    emit(
        validation_roc_auc=history[-1],
        best_validation_roc_auc=max(history),
        holdout_roc_auc=found["target"]["roc_auc"],
        test_roc_auc=outcome.test_statistics["target"]["roc_auc"],
    )


def measure(bench: Bench) -> list[Row]:
    data, holdout = bench.csv(200_000), bench.holdout()
    lines = []
    found = Comparison()
    for seed in bench.pick(SEEDS, SEEDS[:1]):
        commands = {
            "distcore": bench.script(
                "stage_quality.py", bench.data / "quality", data, holdout, seed
            )
        }
        if bench.ludwig:
            commands["ludwig"] = ludwig(bench, data, holdout, seed)
        for name, command in commands.items():
            figures = run(command)
            found.add(name, figures)
            say(
                f"  seed {seed}  {name}: "
                + ", ".join(f"{key} {figures[key]:.4f}" for key in REFERENCE)
            )
    for key, target in (("validation_roc_auc", at_least(0.813)), ("holdout_roc_auc", None)):
        lines.append(line(found, key, target, bool(bench.ludwig)))
    return lines


def line(found: Comparison, key: str, target: Target | None, beside: bool) -> Row:
    ours = [each[key] for each in found.runs["distcore"]]
    value = statistics.mean(ours)
    theirs = (
        statistics.mean(each[key] for each in found.runs["ludwig"]) if beside else REFERENCE[key]
    )
    note = "seed by seed: ours " + ", ".join(f"{each:.4f}" for each in ours)
    if beside:
        note += "; Ludwig " + ", ".join(f"{each[key]:.4f}" for each in found.runs["ludwig"])
    version = found.runs["ludwig"][0]["version"] if beside else "0.17.8"
    if key.startswith("validation"):
        best = [each["best_validation_roc_auc"] for each in found.runs["distcore"]]
        note += "; our best epochs " + ", ".join(f"{each:.4f}" for each in best)
    return Row(
        key.removesuffix("_roc_auc"), "ROC AUC", value, f"Ludwig {version}" + ("" if beside else " on another machine, one seed"),
        theirs, value, min(ours), max(ours), "mean", str(target or ""), target.met(value) if target else None, len(ours),
        found.others("distcore"), note,
    )  # fmt: skip


if __name__ == "__main__":
    main()
