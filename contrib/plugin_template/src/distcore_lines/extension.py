"""Listen to a run: one JSON object a line for each evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.plugin import hookimpl

if TYPE_CHECKING:
    from distcore_lines.options import LinesOptions


class Lines:
    """Adds `{"epoch", "step", "metrics"}` to the file. Each line stands by itself, so rank 0 can
    write it."""

    def __init__(self, options: LinesOptions) -> None:
        self.path = Path(options.path)

    @hookimpl
    def epoch_finished(self, epoch: int, step: int, metrics: Mapping[str, Any]) -> None:
        """metrics: {split: {output feature: {metric: value}}}."""
        line = json.dumps({"epoch": epoch, "step": step, "metrics": metrics})
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
