"""How well a model does on rows that hold their targets: scores and the report's diagnostics, in
one pass over them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from distcore_core.contracts import JSON
from distcore_torch.decoding import Outputs, RowNumbers, decoded_passes
from distcore_torch.diagnostics import Arrays, Diagnostics
from distcore_torch.training.scores import MergedScores, Scores, ScoresState

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore_core.contracts import Batch
    from distcore_core.progress import Progress
    from distcore_data.features import Features


class EvaluationState(NamedTuple):
    """What was found of some rows; `Evaluation.add` puts it to what others found."""

    rows: int
    scores: ScoresState
    diagnostics: dict[str, Arrays]


class Evaluation:
    """Scores and diagnostics of a dataset, whole or of one piece after the other.

    The numbers depend on the rows and on where they are cut into pieces (`cut`), not on who works
    on which piece, nor on how many do; their last digits also on the threads of each, by which
    torch cuts long sums. rows: how many were scored. Memory does not grow with them, but for
    metrics that must keep every row (an exact ROC AUC).
    """

    def __init__(self, features: Features, split: str = "") -> None:
        self.features = features
        self.rows = 0
        self._scores, self._drawn, self._seen = Scores(features), Diagnostics(features), 0
        self._merged = MergedScores(Scores(features, split=split))
        self._diagnostics = Diagnostics(features)

    def score(
        self, batches: Iterator[tuple[Batch, Outputs]], progress: Progress
    ) -> Iterator[tuple[Batch, Outputs]]:
        """Score every batch as it passes."""
        for batch, outputs in batches:
            self._scores.update(outputs, batch)
            self._drawn.update(outputs, batch)
            self._seen += batch.rows
            self.rows += batch.rows
            progress.done += batch.rows
            yield batch, outputs

    def run(
        self,
        batches: Iterator[tuple[Batch, Outputs]],
        progress: Progress,
        numbers: RowNumbers | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Score every batch, and give its decoded predictions, each beside its row's number; none
        without `numbers`."""
        scored = self.score(batches, progress)
        if numbers is None:
            for _ in scored:
                continue
            return
        passes = (outputs for batch, outputs in scored if batch.rows)
        yield from numbers.beside(decoded_passes(self.features, passes))

    def state(self) -> EvaluationState:
        """What was found since the last cut."""
        return EvaluationState(self._seen, self._scores.state(), self._drawn.state())

    def add(self, state: EvaluationState) -> None:
        """Add what another found of the next piece of the rows."""
        self.rows += state.rows
        self._add(state)

    def _add(self, state: EvaluationState) -> None:
        self._merged.add(state.scores)
        self._diagnostics.add(state.diagnostics)

    def cut(self) -> None:
        """The piece under way ends here."""
        if self._seen:
            self._add(self.state())
            self._scores.reset()
            self._drawn, self._seen = Diagnostics(self.features), 0

    def statistics(self) -> JSON:
        """{output feature: {metric: number or None}}, once everything was scored or added."""
        self.cut()
        return self._merged.compute()

    def drawings(self) -> JSON:
        """What the report draws, once everything was scored or added."""
        self.cut()
        return self._diagnostics.as_json()
