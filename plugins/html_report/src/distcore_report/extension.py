"""The extension `report`: writes report.html as soon as a run's results are whole."""

from __future__ import annotations

from pathlib import Path

from distcore_core.errors import TrainingError
from distcore_core.hooks import hookimpl
from distcore_core.io.os_errors import explained


class Report:
    """Listens to `results_written`, so the page goes into a bucket with what it is made of."""

    @hookimpl
    def results_written(self, directory: Path) -> None:
        from distcore_report.page import write_report

        with explained(directory, "the report", TrainingError):
            write_report(directory)
