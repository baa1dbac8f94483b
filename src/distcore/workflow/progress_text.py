"""A run's progress in words: a line a stage, a line an evaluation round, and how training ended."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from distcore_core.contracts.values import COMBINED
from distcore_core.progress import Progress, Round, Stage
from distcore_data.figures import counted, duration
from distcore_data.printable import printable


def line_of(stage: Stage) -> str:
    """`train       42,000 rows in 3.1 s (13.5 k rows/s)`; without rows, only the time."""
    name, rows, seconds, _ = stage
    if not rows:
        return f"{name:<11} {duration(seconds)}"
    return (
        f"{name:<11} {rows:,} rows in {duration(seconds)} "
        f"({short(rows / max(seconds, 1e-9))} rows/s)"
    )


def status_of(progress: Progress) -> str:
    """Where the stage under way is: `train       step 120 of 3,000 (4 %), 13.5 k rows/s, loss
    0.4123, 2 min left`."""
    done, total, unit = progress.done, progress.total, progress.unit
    parts = [f"{done:,} {unit}"]
    if total:
        parts = [
            f"{unit.removesuffix('s')} {done:,} of {total:,} ({done / total:.0%})".replace(
                "%", " %"
            )
        ]
    parts += [rate_of(progress), loss_of(progress), progress.note, time_of(progress)]
    return f"{progress.stage:<11} {', '.join(each for each in parts if each)}"


def rate_of(progress: Progress) -> str:
    """Rows a second; empty before the first."""
    seconds = time.monotonic() - progress.started
    rows = (progress.done - progress.first) * progress.rows_per_unit
    return f"{short(rows / seconds)} rows/s" if rows and seconds > 0 else ""


def loss_of(progress: Progress) -> str:
    """The last step's; reading it may wait for a device."""
    loss = progress.loss
    return "" if loss is None else f"loss {float(loss):.4f}"


def time_of(progress: Progress) -> str:
    """How long the stage will still take, or how long it takes already."""
    done, total, elapsed = progress.done, progress.total, time.monotonic() - progress.started
    if total and progress.first < done < total:
        left = elapsed * (total - done) / (done - progress.first)
        return f"{duration(left, rough=True)} left"
    return f"{duration(elapsed, rough=True)} so far"


def round_line(found: Round) -> str:
    """`epoch 4/30   train loss 0.4051   validation loss 0.5066, roc_auc 0.8011   best 0.8025 at
    3, patience 4`."""
    where = f"{found.unit} {_count(found.epoch)}/{_count(found.epochs)}"
    if found.evaluation != found.epoch:
        where = f"evaluation {found.evaluation}, {where}"
    if found.scored is not None:
        where = f"{where}, scores of {found.scored}"
    splits = [
        f"{'train' if split == 'training' else split} {shown}"
        for split, outputs in found.metrics.items()
        if (shown := _metrics(found, outputs))
    ]
    return printable("   ".join(filter(None, [where, *splits, _standing(found)])))


def _metrics(found: Round, outputs: Mapping[str, Mapping[str, float | None]]) -> str:
    """The loss of a split and the metric that is watched; with several outputs, under the
    outputs' names."""
    several = len(set(outputs) - {COMBINED}) > 1
    own = found.feature if found.feature in outputs else COMBINED
    if not several and own == COMBINED:
        own = next(iter(outputs), COMBINED)
    wanted = [(COMBINED if several else own, "loss")]
    wanted += [(own, found.metric)] if (own, found.metric) not in wanted else []
    parts = []
    for feature, metric in wanted:
        value = outputs.get(feature, {}).get(metric)
        if value is not None:
            parts.append(f"{f'{feature} ' if several else ''}{metric} {number(value)}")
    return ", ".join(parts)


def _standing(found: Round) -> str:
    """Whether this round is the best, and how long training waits for a better one; empty if
    nothing judges them."""
    if found.best is None or found.best_evaluation is None:
        return "" if found.split == "training" else f"no finite {found.metric} yet"
    if found.best_evaluation == found.evaluation:
        return "best so far"
    patience = "" if found.patience_left is None else f", patience {found.patience_left}"
    return f"best {number(found.best)} at {found.best_evaluation}{patience}"


def closing(rounds: Sequence[Round]) -> str:
    """`stopped early at evaluation 11; best was 6 by roc_auc 0.8025`; empty if training told no
    round."""
    if not rounds:
        return ""
    last = rounds[-1]
    early = last.patience_left == 0 and last.epoch < last.epochs
    how = f"stopped early at {counted(last.unit)} {last.evaluation}"
    if not early:
        how = "trained" if last.epoch >= last.epochs else "ended after"
        how += f" {_count(last.epoch)} {last.unit}{'' if last.epoch == 1 else 's'}"
    if last.best is None and last.split == "training":
        return f"{how}; the last is kept, for there are no validation rows"
    if last.best is None:
        return f"{how}; no {counted(last.unit)} had a finite {last.metric}"
    best = f"best was {last.best_evaluation} by {last.metric} {number(last.best)}"
    return printable(f"{how}; {best}")


def number(value: float) -> str:
    """Four digits behind the point, fewer for large numbers, powers for tiny ones."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.1f}"
    return f"{value:.4f}" if size >= 0.001 or not size else f"{value:.3g}"


def short(value: float) -> str:
    """`13.5 k`."""
    for unit in ("", " k", " M", " G"):
        if abs(value) < 999.5:  # which three digits do not make a thousand of
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g} T"


def _count(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"
