"""Loss and metrics of a split, streamed over batches and the same for any number of workers.

Losses are sums over rows in float64, divided once. Metrics are torchmetrics' of each output feature; states of several
ranks are merged in rank order. What cannot be computed (no rows, one class for an ROC AUC) is null with a warning.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from distcore.contracts import JSON, Feature, FeatureSet

if TYPE_CHECKING:
    import numpy as np

    from distcore.batch import Batch
    from distcore.training.strategy import Strategy

COMBINED = "combined"
"""Under this name the loss over all outputs is reported, as in Ludwig."""

PENDING_VALUES = 1 << 20
"""Output values that are collected before the metrics see them: an update costs the same for one row as for many."""

log = logging.getLogger("distcore")


def loss_weight(feature: Feature) -> float:
    """The output's share of the combined loss (`loss.weight`, default 1)."""
    loss = getattr(feature.options, "loss", None)
    return float(getattr(loss, "weight", 1.0))


class Scores:
    """Sums and metrics of one split.

    features: fitted. metrics: False for losses alone (torchmetrics is then never imported).
    split: named in warnings.
    """

    def __init__(self, features: FeatureSet, *, split: str = "", metrics: bool = True) -> None:
        self.split = split
        self.rows = 0
        self._outputs = [_Output(feature, features.metadata[feature.name], metrics) for feature in features.outputs]

    def update(
        self, outputs: Mapping[str, Any], batch: Batch, logits: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        """Add a batch.

        outputs: {feature: output}, as `FeatureNetwork.output` describes: tensors or arrays, [B] or [B, classes].
        logits: what the loss is computed from; without them (not every model has any) no loss is reported."""
        self.rows += batch.rows
        if not batch.rows:
            return
        for each in self._outputs:
            target = batch[each.name]
            if logits is not None:
                each.add_loss(logits[each.name], target)
            each.add(outputs[each.name], target)

    def update_logits(self, logits: Mapping[str, torch.Tensor], batch: Batch) -> None:
        """Add a batch of a torch model; [B] or [B, classes] for each output."""
        self.update({each.name: each.output(logits[each.name]) for each in self._outputs}, batch, logits)

    def compute(self, strategy: Strategy | None = None) -> JSON:
        """{output feature: {metric: number or None}}, with `combined` for the loss of all; {} where there are no rows.

        strategy: of the gang; every rank calls, rank 0 computes, and every rank gets its answer."""
        mine = (self.rows, [each.state() for each in self._outputs])
        if strategy is None:
            return self._result([mine])
        ranks = strategy.gather(mine)
        found: JSON = strategy.gather(self._result(ranks) if strategy.member.rank == 0 else None)[0]
        return found

    def _result(self, ranks: list[Any]) -> JSON:
        rows = sum(rank[0] for rank in ranks)
        if not rows:
            log.warning("The %s split has no rows, so it has no metrics.", self.split or "evaluated")
            return {}
        result: JSON = {}
        combined: float | None = 0.0
        for index, each in enumerate(self._outputs):
            found = each.merged([rank[1][index] for rank in ranks if rank[0]], rows, self.split)
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
        self.weight = loss_weight(feature)
        self.metadata = metadata
        self.network = feature.network()
        self.loss: torch.Tensor | None = None
        self.metrics = dict(self.network.metrics(metadata)) if metrics else {}
        self._pending: list[tuple[torch.Tensor, Any]] = []
        self._pending_values = 0

    def output(self, logits: torch.Tensor) -> torch.Tensor:
        return self.network.output(logits, self.metadata)

    def add_loss(self, logits: torch.Tensor, target: Any) -> None:
        # The metric `loss`, where a feature has one, is for models without logits: computed from outputs.
        self.metrics.pop("loss", None)
        rows = self.network.loss(logits.float(), target, self.metadata).sum(dtype=torch.float64)
        self.loss = rows if self.loss is None else self.loss + rows

    def add(self, output: torch.Tensor | np.ndarray, target: Any) -> None:
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
        # Evaluation runs in inference mode; states made there may only be changed there.
        with torch.inference_mode():
            for metric in self.metrics.values():
                metric.to(output.device)
                metric.update(output, target)

    def state(self) -> tuple[float | None, dict[str, dict[str, Any]]]:
        """What travels between ranks: the sum of losses and the metrics' states, on the CPU."""
        self._flush()
        loss = None if self.loss is None else float(self.loss)
        return loss, {name: _on_cpu(metric.metric_state) for name, metric in self.metrics.items()}

    def merged(self, states: list[Any], rows: int, split: str) -> JSON:
        """Mean loss (where there were logits) and metrics over the ranks that saw rows; null: it has no value."""
        losses = [loss for loss, _ in states]
        values: JSON = {} if None in losses else {"loss": _finite(sum(losses) / rows)}
        for name, metric in self.network.metrics(self.metadata).items() if states[0][1] else ():
            if name in states[0][1]:
                with torch.inference_mode():
                    value = _compute(metric, [state[name] for _, state in states], f"{split} {name} of {self.name}")
                values[name] = value
        return values


def _compute(metric: Any, states: list[Mapping[str, Any]], what: str) -> float | None:
    """The metric's value over the merged states; None with a warning where it has none."""
    _merge(metric, states)
    metric.distributed_available_fn = lambda: False  # merged already: torchmetrics must not gather once more
    metric._update_count = 1  # torchmetrics warns about a metric that was never updated; these were, elsewhere
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = metric.compute()
        except (ValueError, RuntimeError, IndexError) as error:  # one row for an R², no pair for a rank correlation
            log.warning("The %s cannot be computed: %s", what.strip(), error)
            return None
    reasons = [str(each.message) for each in caught if issubclass(each.category, UserWarning)]
    meaningless = [reason for reason in reasons if reason.startswith(("No positive samples", "No negative samples"))]
    number = None if meaningless else _finite(float(value))
    if number is None:
        log.warning("The %s has no value: %s", what.strip(), meaningless[0] if meaningless else "it is not a number")
    return number


def _merge(metric: Any, states: list[Mapping[str, Any]]) -> None:
    """Give a fresh metric the states of all ranks, reduced as the metric itself says, in rank order."""
    for name, reduction in metric._reductions.items():
        parts = [state[name] for state in states]
        if isinstance(parts[0], list):
            setattr(metric, name, [each for part in parts for each in part])
        elif len(parts) == 1:
            setattr(metric, name, parts[0])
        else:
            stacked = torch.stack(parts)
            setattr(metric, name, reduction(stacked) if reduction is not None else stacked)


def _on_cpu(state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: [each.cpu() for each in value] if isinstance(value, list) else value.cpu()
        for name, value in state.items()
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def evaluate(
    module: torch.nn.Module,
    batches: Iterable[Batch],
    scores: Scores,
    autocast: Callable[[], Any] | None = None,
) -> Scores:
    """Run a torch model over batches and add them to the scores; the module is left in the mode it was in.

    autocast: makes the context of the forward pass (mixed precision)."""
    training = module.training
    module.eval()
    try:
        with torch.inference_mode():
            for batch in batches:
                if not batch.rows:
                    continue
                if autocast is None:
                    logits = module(batch)
                else:
                    with autocast():
                        logits = module(batch)
                scores.update_logits(logits, batch)
    finally:
        module.train(training)
    return scores
