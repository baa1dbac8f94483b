"""Evaluation of a torch model: its outputs over batches, added to scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from distcore_torch.training.scores import Scores

if TYPE_CHECKING:
    from distcore_core.contracts import Batch


def evaluate(
    module: torch.nn.Module,
    batches: Iterable[Batch],
    scores: Scores,
    autocast: Callable[[], Any] | None = None,
) -> Scores:
    """Run a torch model over batches and add them to the scores; the module is left in the mode it
    was in.

    autocast: makes the context of the forward pass (mixed precision)."""
    with _evaluating(module, autocast) as forward:
        for batch in batches:
            if batch.rows:
                scores.update_logits(forward(batch), batch)
    return scores


def evaluate_parts(
    module: torch.nn.Module,
    batches: Iterable[Any],
    parts: Sequence[Scores],
    autocast: Callable[[], Any] | None,
) -> None:
    """As `evaluate`, each part of a batch by itself, with scores of its own: so no part knows its
    neighbours.

    batches: of distcore_torch, with `part_rows`."""
    with _evaluating(module, autocast) as forward:
        for batch in batches:
            for scores, part in zip(parts, batch.parts(), strict=True):
                if part.rows:
                    scores.update_logits(forward(part), part)


@contextmanager
def _evaluating(
    module: torch.nn.Module, autocast: Callable[[], Any] | None
) -> Iterator[Callable[[Batch], Mapping[str, torch.Tensor]]]:
    """The module's forward pass in evaluation mode."""

    def forward(batch: Batch) -> Mapping[str, torch.Tensor]:
        with nullcontext() if autocast is None else autocast():
            found: Mapping[str, torch.Tensor] = module(batch)
        return found

    training = module.training
    module.eval()
    try:
        with torch.inference_mode():
            yield forward
    finally:
        module.train(training)
