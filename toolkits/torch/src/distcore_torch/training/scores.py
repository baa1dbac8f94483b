"""Loss and metrics of a split, streamed over batches and the same for any number of workers.

Losses are sums over rows in float64, divided once. Metrics are torchmetrics' of each output
feature; states of several ranks, or of pieces of a dataset, are merged exactly (merging.py). What
cannot be computed (no rows, one class for an ROC AUC) is null with a warning; so is everything of
an output that is not finite in some row: of the others alone it would look better than it is.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from distcore_core.contracts import JSON, Feature, FeatureSet
from distcore_core.contracts.values import COMBINED
from distcore_core.errors import PluginBroken
from distcore_data.encoding.exactsum import total
from distcore_data.printable import printable
from distcore_torch.decoding import Answers
from distcore_torch.training.merging import MergedState, State

if TYPE_CHECKING:
    import numpy as np

    from distcore_core.contracts import Batch
    from distcore_torch.training.strategy import Strategy

PENDING_VALUES = 1 << 20
"""Output values that are collected before the metrics see them: an update costs the same for one
row as for many."""

log = logging.getLogger("distcore")


def import_metrics(features: FeatureSet) -> None:
    """Import what the metrics need in a thread, beside the first steps: torchmetrics takes some
    tenths of a second. What goes wrong there goes wrong again, and is told, when they are used.

    No daemon: a process that ended while a thread imports compiled modules could crash."""

    def make() -> None:
        with suppress(Exception):
            for feature in features.outputs:
                feature.network().metrics(features.metadata[feature.name])

    threading.Thread(target=make, name="distcore-metrics").start()


class Scores:
    """Sums and metrics of one split.

    features: fitted. metrics: False for losses alone (torchmetrics is then never imported).
    split: named in warnings.
    """

    def __init__(self, features: FeatureSet, *, split: str = "", metrics: bool = True) -> None:
        self.split = split
        self.rows = 0
        self.outputs = [
            _Output(feature, features.metadata[feature.name], metrics)
            for feature in features.outputs
        ]

    def reset(self) -> None:
        """Begin again with the same metrics: to make those of one output takes milliseconds."""
        self.rows = 0
        for each in self.outputs:
            each.reset()

    def update(
        self,
        outputs: Mapping[str, Any],
        batch: Batch,
        logits: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """Add a batch.

        Args:
            outputs: {feature: output}, as `FeatureNetwork.output` describes: tensors or arrays, [B]
                or [B, classes].
            batch: With the targets.
            logits: What the loss is computed from; None: those that `Answers` brought. Without any
                (not every model has them) it is the metric `loss`, of outputs, or none.
        """
        self.rows += batch.rows
        if not batch.rows:
            return
        if logits is None and isinstance(outputs, Answers):
            logits = {name: each.cpu() for name, each in outputs.logits.items()}
        for each in self.outputs:
            target = batch[each.name]
            if logits is not None:
                each.add_loss(logits[each.name], target)
            each.add(outputs[each.name], target)

    def update_logits(self, logits: Mapping[str, torch.Tensor], batch: Batch) -> None:
        """Add a batch of a torch model.

        Args:
            logits: {feature: [B] or [B, classes]}.
            batch: With the targets.
        """
        self.update(
            {each.name: each.output(logits[each.name]) for each in self.outputs}, batch, logits
        )

    def compute(self, strategy: Strategy | None = None) -> JSON:
        """{output feature: {metric: number or None}}, with `combined` for the loss of all; {} if
        there are no rows. Begins again: what metrics keep of the rows may be large.

        strategy: of the worker group; every rank calls, rank 0 computes, and every rank gets its
            answer."""
        if strategy is not None:
            return compute([self], strategy)
        merged = MergedScores(self)
        merged.add(self.state())
        self.reset()
        return merged.compute()

    def state(self) -> ScoresState:
        """What was summed so far, on the CPU: `MergedScores` puts states together."""
        return ScoresState(self.rows, [each.state() for each in self.outputs])


class OutputState(NamedTuple):
    """Sums over some rows of one output. loss: None if there were no logits; metrics: their states;
    unknown: rows whose class the model does not know, which are in neither; not_finite: other rows
    in which the output is not finite: if there are some, the metrics saw not all the rows."""

    loss: float | None
    metrics: Mapping[str, State]
    unknown: int
    not_finite: int


class ScoresState(NamedTuple):
    """Sums over some rows, of each output."""

    rows: int
    outputs: list[OutputState]


class MergedScores:
    """Sums over parts of a split, as metrics; the same bits whatever order the parts are added in,
    as long as no metric keeps rows (those of the parts are joined in the order that they were
    added).

    like: made for the same features; it is not looked into."""

    def __init__(self, like: Scores) -> None:
        self.split = like.split
        self.rows = 0
        self._outputs = like.outputs
        self._losses: list[list[float | None]] = [[] for _ in self._outputs]
        self._metrics: list[dict[str, tuple[Any, MergedState]]] = [{} for _ in self._outputs]
        self._unknown = [0] * len(self._outputs)
        self._not_finite = [0] * len(self._outputs)

    def add(self, state: ScoresState) -> None:
        """Add a part; one without rows says nothing, and its metrics may never have been made."""
        self.rows += state.rows
        if not state.rows:
            return
        for index, (loss, metrics, unknown, not_finite) in enumerate(state.outputs):
            self._losses[index].append(loss)
            self._unknown[index] += unknown
            self._not_finite[index] += not_finite
            if metrics and not self._metrics[index]:
                self._metrics[index] = self._outputs[index].empty(metrics)
            if not_finite:  # the metrics may have seen no row
                continue
            for name, each in metrics.items():
                self._metrics[index][name][1].add(each)

    def compute(self) -> JSON:
        """As `Scores.compute`."""
        if not self.rows:
            log.warning(
                "The %s split has no rows, so it has no metrics.", self.split or "evaluated"
            )
            return {}
        result: JSON = {}
        combined: float | None = 0.0
        for index, each in enumerate(self._outputs):
            counted = self.rows - self._unknown[index]
            told = f" of the {self.split} split" if self.split else "", printable(each.name)
            if counted < self.rows:
                log.warning(
                    "%d of %d rows%s have a value of %s that the model was not trained with; its "
                    "metrics are of the others.",
                    *(self._unknown[index], self.rows),
                    *told,
                )
            if self._not_finite[index]:
                log.warning(
                    "In %d of %d rows%s the output %s is not finite, so its metrics have no value. "
                    "Look for extreme values in their inputs.",
                    *(self._not_finite[index], counted),
                    *told,
                )
                counted = 0
            found = each.values(self._losses[index], self._metrics[index], counted, self.split)
            result[each.name] = found
            loss = found.get("loss")
            combined = None if loss is None or combined is None else combined + each.weight * loss
        if all("loss" in result[each.name] for each in self._outputs):
            result[COMBINED] = {"loss": combined}
        return result


class _Output:
    """One output feature's sums."""

    def __init__(self, feature: Feature, metadata: JSON, metrics: bool) -> None:
        self.name = feature.name
        self.weight = feature.loss_weight
        self.metadata = metadata
        self.network = feature.network()
        self.loss: torch.Tensor | None = None
        self._metrics: dict[str, Any] | None = None if metrics else {}
        self._empty: dict[str, Any] = {}
        self._pending: list[tuple[torch.Tensor, Any]] = []
        self._pending_values = 0
        self._has_classes = feature.labels(metadata) is not None
        self._unknown: torch.Tensor | int = 0  # a tensor: nobody waits for it at every batch
        self._not_finite = 0

    @property
    def metrics(self) -> dict[str, Any]:
        """Made when the first rows come; none come to what is only merged into."""
        if self._metrics is None:
            self._metrics = dict(self.network.metrics(self.metadata))
        return self._metrics

    def reset(self) -> None:
        self.loss = None
        self._pending, self._pending_values, self._unknown, self._not_finite = [], 0, 0, 0
        for metric in (self._metrics or {}).values():
            metric.reset()

    def output(self, logits: torch.Tensor) -> torch.Tensor:
        return self.network.output(logits, self.metadata)

    def add_loss(self, logits: torch.Tensor, target: Any) -> None:
        # The metric `loss`, where a feature has one, is for models without logits, computed from
        # outputs; and of a root, which is one of all rows and no mean of the batches'.
        if getattr(self.metrics.get("loss"), "root", False):
            return
        self.metrics.pop("loss", None)
        rows = self.network.loss(logits.float(), target, self.metadata).sum(dtype=torch.float64)
        self.loss = rows if self.loss is None else self.loss + rows

    def add(self, output: torch.Tensor | np.ndarray, target: Any) -> None:
        if self._has_classes:
            self._unknown = self._unknown + (torch.as_tensor(target) < 0).sum()
        if not self.metrics:
            return
        output = torch.as_tensor(output).detach()
        if isinstance(target, torch.Tensor):
            target = target.clone()  # the loader fills its buffers again
        self._pending.append((output.float() if output.is_floating_point() else output, target))
        self._pending_values += output.numel()
        if self._pending_values >= PENDING_VALUES or not isinstance(target, torch.Tensor):
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        outputs = [output for output, _ in self._pending]
        targets = [target for _, target in self._pending]
        self._pending, self._pending_values = [], 0
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        target = targets[0] if len(targets) == 1 else torch.cat(targets)
        if not output.sum().isfinite():
            rows = ~output.isfinite().reshape(len(output), -1).all(1)
            if self._has_classes:
                rows &= torch.as_tensor(target, device=rows.device) >= 0
            self._not_finite += int(rows.sum())
            if rows.any():
                return
        # Evaluation runs in inference mode; states made there may only be changed there.
        with torch.inference_mode():
            for metric in self.metrics.values():
                metric.to(output.device)
                metric.update(output, target)

    def empty(self, names: Collection[str]) -> dict[str, tuple[Any, MergedState]]:
        """{name: (metric, what will be merged into it before it is computed)}, in the feature's
        order. The metrics are the same at every call, and hold nothing in between."""
        self._empty = self._empty or dict(self.network.metrics(self.metadata))
        return {
            name: (metric, MergedState(metric._reductions))
            for name, metric in self._empty.items()
            if name in names
        }

    def state(self) -> OutputState:
        """What travels between ranks, on the CPU."""
        self._flush()
        loss = None if self.loss is None else float(self.loss)
        states = {name: _on_cpu(each.metric_state) for name, each in (self._metrics or {}).items()}
        return OutputState(loss, states, int(self._unknown), self._not_finite)

    def values(
        self,
        losses: Sequence[float | None],
        metrics: Mapping[str, tuple[Any, MergedState]],
        rows: int,
        split: str,
    ) -> JSON:
        """Mean loss (where there were logits) and metrics over the parts that saw rows; null: it
        has no value. rows: that are counted; 0: nothing has a value."""
        known = [loss for loss in losses if loss is not None]
        if not rows:
            return dict.fromkeys([*(["loss"] if len(known) == len(losses) else []), *metrics])
        found: JSON = {} if len(known) < len(losses) else {"loss": _finite(total(known) / rows)}
        with torch.inference_mode():
            for name, (metric, state) in metrics.items():
                found[name] = _compute(metric, state, f"{split} {name} of {self.name}")
                metric.reset()
        return found


_catching = threading.RLock()
"""What is done with warnings is the process's: of two threads that catch them at once, one would
put back what the other has set."""

# A child would go on with what another thread has set.
os.register_at_fork(
    before=_catching.acquire, after_in_parent=_catching.release, after_in_child=_catching.release
)


def _compute(metric: Any, state: MergedState, what: str) -> float | None:
    """The metric's value over the merged states; None with a warning where it has none."""
    state.into(metric)
    # Merged already: torchmetrics must not gather once more.
    metric.distributed_available_fn = lambda: False
    # torchmetrics warns about a metric that was never updated; these were, elsewhere.
    metric._update_count = 1
    with _catching, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = metric.compute()
        except (
            ValueError,
            RuntimeError,
            IndexError,
        ) as error:  # one row for an R², no pair for a rank correlation
            log.warning("The %s cannot be computed: %s", what.strip(), error)
            return None
    reasons = [str(each.message) for each in caught if issubclass(each.category, UserWarning)]
    meaningless = [
        reason
        for reason in reasons
        if reason.startswith(("No positive samples", "No negative samples"))
    ]
    try:
        number = None if meaningless else _finite(float(value))
    except (TypeError, ValueError, RuntimeError) as error:
        shape = f" of the shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
        raise PluginBroken(
            f"The {what.strip()} is a {type(value).__name__}{shape}, and no number. Report this to "
            "its authors."
        ) from error
    if number is None:
        log.warning(
            "The %s has no value: %s",
            what.strip(),
            meaningless[0] if meaningless else "it is not a number",
        )
    return number


def _on_cpu(state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: [each.cpu() for each in value] if isinstance(value, list) else value.cpu()
        for name, value in state.items()
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def compute(parts: Sequence[Scores], strategy: Strategy) -> JSON:
    """The metrics over all ranks, as `Scores.compute`. parts: of this rank, in order."""
    merged = MergedScores(parts[0])
    for rank in strategy.gather([tuple(each.state()) for each in parts]):
        for state in rank:
            merged.add(ScoresState(*state))
    for each in parts:
        each.reset()
    found: JSON = strategy.gather(merged.compute() if strategy.rank.index == 0 else None)[0]
    return found
