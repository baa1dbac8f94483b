"""An extension that writes down what it hears of training: an object of JSON a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)


class DiaryOptions(BaseModel):
    """path: of the file, which is added to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str


class Diary:
    """Hears what is told in rank 0."""

    def __init__(self, options: DiaryOptions) -> None:
        self.path = options.path

    @hookimpl
    def epoch_finished(
        self, epoch: int, step: int, metrics: Mapping[str, Any], directory: Path | None
    ) -> None:
        """All of it."""
        self._write("epoch_finished", epoch=epoch, step=step, metrics=metrics, directory=directory)

    @hookimpl
    def checkpoint_saved(self, step: int, directory: Path) -> None:
        """And whether the folder is there."""
        whole = Path(directory).is_dir()
        self._write("checkpoint_saved", step=step, directory=directory, whole=whole)

    def _write(self, event: str, **told: Any) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **told}, default=str) + "\n")


@hookimpl
def distcore_make_extension(name: str, options: DiaryOptions) -> Any:
    """The extension, whatever it is called."""
    return Diary(options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    """Of its options."""
    return DiaryOptions
