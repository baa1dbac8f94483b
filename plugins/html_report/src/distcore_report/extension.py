"""The extension `report`: writes report.html as soon as a run's results are whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distcore_core.errors import TrainingError
from distcore_core.hooks import hookimpl
from distcore_data.os_errors import explained


class Report:
    """Listens to `results_written`, so the page goes into a bucket with what it is made of; last,
    so that other extensions may write there what a section of theirs draws."""

    def __init__(self) -> None:
        self.block: tuple[str, ...] = ()

    @hookimpl
    def run_started(self, config: Mapping[str, Any]) -> None:
        self.block = tuple(config.get("plugins", {}).get("block", ()))

    @hookimpl(trylast=True)
    def results_written(self, directory: Path) -> None:
        from distcore_core.registry.manager import Plugins
        from distcore_report.page import write_report

        with explained(directory, "the report", TrainingError):
            write_report(directory, plugins=Plugins(self.block))
