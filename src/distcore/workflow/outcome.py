"""What a run gives back to who called it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from distcore.workflow import results
from distcore_core.contracts import JSON
from distcore_data.run_files import REPORT

if TYPE_CHECKING:
    from distcore.workflow.shown import Figure
    from distcore_data.stores.run_sync import Mirror


@dataclass(frozen=True)
class Outcome:
    """What `train` and `experiment` give back.

    directory: the experiment's folder. model: its model folder, or None if it was not saved. If
    results go to a bucket, these and `predictions` are addresses.
    training_statistics: {split: {output feature: {metric: [a value an evaluation]}}}.
    test_statistics: {output feature: {metric: number}}, None for `train`.
    predictions: the file, or None. report: the page that the extension `report` wrote, or None.
    """

    directory: Path | str
    model: Path | str | None
    training_statistics: JSON = field(repr=False)
    test_statistics: JSON | None = None
    predictions: Path | str | None = None
    report: Path | str | None = None

    def plot(self, kind: str = "curves", metric: str | None = None) -> Figure:
        """A figure that a notebook shows; its `spec` is Vega-Lite.

        Args:
            kind: "curves", "confusion", "importance" or "residuals".
            metric: Of the curves; None for the one that picked the best evaluation.

        Raises:
            UserError: There is no such figure, or this run has nothing for it.
        """
        from distcore.workflow.shown import figure

        return figure(self, kind, metric)

    def _repr_html_(self) -> str:
        from distcore.workflow.shown import html_of

        return html_of(self)

    def in_bucket(self, mirror: Mirror) -> Outcome:
        """The same, with the addresses of what lies in the mirror."""
        model = mirror.store.where(results.MODEL) if self.model is not None else None
        predictions = (
            mirror.store.where(results.PREDICTIONS) if self.predictions is not None else None
        )
        report = mirror.store.where(REPORT) if self.report is not None else None
        return replace(
            self, directory=mirror.url, model=model, predictions=predictions, report=report
        )
