"""What every extension must hold: it listens to events that exist, never fails, and changes
nothing of the run."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from distcore_core.contracts import EXTENSION
from distcore_core.errors import DataError
from distcore_core.hooks import PROJECT
from distcore_core.registry.events import EVENTS, listening
from distcore_core.registry.manager import Plugins
from distcore_testing.app import app


class ExtensionSuite:
    """Subclass with `name`, and `options` (or `options_in(folder)` if it writes into a folder).

    events: some that it must listen to; empty if it only wraps factories.
    """

    name: str
    options: Mapping[str, Any] = {}
    events: tuple[str, ...] = ("run_finished",)

    def options_in(self, folder: Path) -> Mapping[str, Any]:
        """Options of an extension whose files lie in this folder."""
        return self.options

    def reference(self, folder: Path) -> dict[str, Any]:
        """Its entry in the config's `extensions`."""
        return {"type": self.name, **self.options_in(folder)}

    def run(self, folder: Path, extensions: list[dict[str, Any]]) -> Any:
        """A short experiment with these extensions."""
        distcore = app()
        from distcore_testing import (
            data,
        )  # needs numpy and pyarrow, which an extension may do without

        config = data.config(str(folder / "cache"), extensions=extensions)
        return distcore.experiment(
            config, dataset=data.table(), output_directory=folder / "results"
        )

    def test_it_listens_to_events_that_exist(self, tmp_path: Path) -> None:
        assert set(self.events) <= set(EVENTS)
        plugins = Plugins()
        made = plugins.make(EXTENSION, self.name, self.options_in(tmp_path))
        implemented = {
            each for each in dir(made) if hasattr(getattr(made, each), f"{PROJECT}_impl")
        }
        assert implemented, "it implements no hook: mark its methods with @hookimpl"
        assert set(self.events) <= implemented
        with listening([self.reference(tmp_path)], plugins):
            """Registered: pluggy knows each hook and each of its arguments."""

    def test_a_run_with_it_makes_the_same_model_and_it_never_fails(self, tmp_path: Path) -> None:
        bare = self.run(tmp_path / "bare", [])
        with _warnings() as said:
            heard = self.run(tmp_path / "heard", [self.reference(tmp_path)])
        assert not said
        assert heard.test_statistics == bare.test_statistics
        assert _digest(heard.model) == _digest(bare.model)

    def test_rank_zero_of_a_worker_group_may_hear_only_part(self, tmp_path: Path) -> None:
        """There a new instance is made, in another process: epochs and checkpoints, no start and
        no end."""
        plugins = Plugins()
        metrics = {"validation": {"y": {"loss": 0.5, "roc_auc": None}}}
        with _warnings() as said, listening([self.reference(tmp_path)], plugins):
            plugins.manager.hook.epoch_finished(
                epoch=1, step=10, metrics=metrics, directory=tmp_path
            )
            plugins.manager.hook.checkpoint_saved(step=10, directory=tmp_path)
        assert not said

    def test_a_run_that_is_refused_ends_with_its_own_error(self, tmp_path: Path) -> None:
        """Nothing was started, and there is no folder."""
        distcore = app()
        from distcore_testing import data

        config = data.config(str(tmp_path / "cache"), extensions=[self.reference(tmp_path)])
        with _warnings() as said, pytest.raises(DataError, match="colour"):
            distcore.experiment(
                config, dataset=data.table().drop(["colour"]), output_directory=tmp_path / "results"
            )
        assert not said


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """What is said of listeners that fail."""
    said: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.msg.startswith("Extension"):
                said.append(record.getMessage())

    handler, logger = Kept(logging.WARNING), logging.getLogger("distcore")
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)


def _digest(model: Path) -> str:
    return hashlib.sha256((model / "weights.safetensors").read_bytes()).hexdigest()
