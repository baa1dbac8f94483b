"""What every extension must hold: it listens to events that exist, takes whatever an event may
say, never fails, and changes nothing of the run or of the process."""

from __future__ import annotations

import copy
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from distcore_core.contracts import EXTENSION
from distcore_core.errors import DataError
from distcore_core.events import EVENTS
from distcore_core.hooks import PROJECT
from distcore_core.registry.listening import listening
from distcore_core.registry.manager import Plugins
from distcore_testing.app import app
from distcore_testing.rank_jobs import until


class ExtensionSuite:
    """Subclass with `name`, and `options` (or `options_in(folder)` if it writes into a folder).

    events: some that it must listen to; empty if it only wraps factories. stops: set it to True if
    it may ask training to end; with these options it must not in two epochs.
    """

    name: str
    options: Mapping[str, Any] = {}
    events: tuple[str, ...] = ("run_finished",)
    stops = False

    def options_in(self, folder: Path) -> Mapping[str, Any]:
        """Options of an extension whose files lie in this folder."""
        return self.options

    def reference(self, folder: Path) -> dict[str, Any]:
        """Its entry in the config's `extensions`."""
        return {"type": self.name, **self.options_in(folder)}

    def run(self, folder: Path, extensions: list[dict[str, Any]]) -> Any:
        """A short experiment with these extensions."""
        distcore = app()
        # It needs numpy and pyarrow, which an extension may do without.
        from distcore_testing import data

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
        """The same weights, predictions and scores, and no file less."""
        bare = self.run(tmp_path / "bare", [])
        with _warnings() as said:
            heard = self.run(tmp_path / "heard", [self.reference(tmp_path)])
        assert not said
        assert heard.test_statistics == bare.test_statistics
        assert heard.training_statistics == bare.training_statistics
        found, told = (_files(each.model.parent) for each in (bare, heard))
        assert set(found) <= set(told), "files of the run are gone"
        for name in ("model/weights.safetensors", "predictions.parquet"):
            assert name not in found or found[name] == told[name], f"{name} is another"

    def test_it_takes_whatever_an_event_may_say(self, tmp_path: Path) -> None:
        """No folder, no number, an interrupt, a failed trial; and leaves what it is given, and the
        process, as they are."""
        outcome = self.run(tmp_path / "bare", [])
        plugins, folder, threads = Plugins(), outcome.model.parent, _undying()
        with (
            _put_back(),
            _warnings() as said,
            listening([self.reference(tmp_path)], plugins),
        ):
            for event, arguments in _events(folder):
                given, before = copy.deepcopy(arguments), _process()
                with _set_here() as names:
                    getattr(plugins.manager.hook, event)(**given)
                after = _process()
                assert not said, f"{event} of {arguments}"
                for name, value in arguments.items():
                    alike = isinstance(value, BaseException) or given[name] == value
                    assert alike, f"it changes the {name} that {event} tells"
                for process in (before, after):
                    known = process["environment"]
                    process["environment"] = {name: known.get(name) for name in names}
                assert after == before, f"at {event} it changes the process"
        assert until(lambda: _undying() <= threads, 20), "a thread of it keeps the process alive"

    def test_it_asks_training_to_stop_only_if_it_says_so(self, tmp_path: Path) -> None:
        """What a listener to `epoch_finished` returns is why training should end."""
        plugins = Plugins()
        with listening([self.reference(tmp_path)], plugins):
            for event, arguments in _events(tmp_path):
                if event == "epoch_finished":
                    answers = plugins.manager.hook.epoch_finished(**arguments)
                    assert self.stops or not answers, answers

    def test_every_run_has_one_of_its_own(self, tmp_path: Path) -> None:
        plugins, options = Plugins(), self.options_in(tmp_path)
        assert plugins.make(EXTENSION, self.name, options) is not (
            plugins.make(EXTENSION, self.name, options)
        )

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
            if record.getMessage().startswith("Extension"):
                said.append(record.getMessage())

    handler, logger = Kept(logging.WARNING), logging.getLogger("distcore")
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


_watched: list[tuple[set[int], set[str]]] = []
"""Of each block of `_set_here`: the threads that are not its own, and the names set so far."""


@contextmanager
def _set_here() -> Iterator[set[str]]:
    """The variables of the environment that are set or removed in the block, by this thread or one
    that it starts: what threads of others set meanwhile is no fault of the extension."""
    _listen()
    others = {each.ident or 0 for each in threading.enumerate()} - {threading.get_ident()}
    watched = (others, set[str]())
    _watched.append(watched)
    try:
        yield watched[1]
    finally:
        _watched.pop()  # blocks end in their turn
        watched[1].discard("PYTEST_CURRENT_TEST")


@cache
def _listen() -> None:
    """Hear of every change to the environment, from now on: an audit hook stays for ever."""

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if _watched and event in ("os.putenv", "os.unsetenv"):
            for others, names in _watched:
                if threading.get_ident() not in others:
                    names.add(os.fsdecode(arguments[0]))

    sys.addaudithook(hear)


def _process() -> dict[str, Any]:
    """What of the process code that comes later may depend on."""
    import numpy as np
    import torch

    return {
        "random": random.getstate(),
        "numpy": repr(np.random.get_state()),
        "torch": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "signals": [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)],
        "warnings": list(warnings.filters),
        "log": [
            (log.level, log.disabled, list(log.handlers), list(log.filters))
            for log in (logging.getLogger(), logging.getLogger("distcore"))
        ],
        "modules": list(sys.path),
        "torch's settings": (
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
        ),
        "umask": _umask(),
    }


@contextmanager
def _put_back() -> Iterator[None]:
    """Undo what an extension changes of what `_process` looks at: it is its own fault, and not that
    of every test that comes later."""
    import numpy as np
    import torch

    known: list[tuple[Callable[..., Any], Any]] = [
        (random.setstate, random.getstate()),
        (np.random.set_state, np.random.get_state()),
        (torch.set_rng_state, torch.get_rng_state()),
        (torch.set_num_threads, torch.get_num_threads()),
        (torch.set_default_dtype, torch.get_default_dtype()),
        (torch.set_grad_enabled, torch.is_grad_enabled()),
        (torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled()),
        (os.chdir, os.getcwd()),
        (os.umask, _umask()),
        (partial(setattr, sys, "path"), list(sys.path)),
    ]
    with ExitStack() as undo:
        for put, value in known:
            undo.callback(put, value)
        for each in (signal.SIGINT, signal.SIGTERM):
            undo.callback(signal.signal, each, signal.getsignal(each))
        for log in (logging.getLogger(), logging.getLogger("distcore")):
            undo.callback(log.setLevel, log.level)
            undo.callback(setattr, log, "disabled", log.disabled)
            undo.callback(setattr, log, "handlers", list(log.handlers))
            undo.callback(setattr, log, "filters", list(log.filters))
        undo.enter_context(warnings.catch_warnings())
        undo.callback(_set_again, undo.enter_context(_set_here()), dict(os.environ))
        yield


def _set_again(names: set[str], environment: Mapping[str, str]) -> None:
    """These variables are what they were; of `names` who listens adds to them meanwhile."""
    for name in names - {"PYTEST_CURRENT_TEST"}:
        os.environ.pop(name, None)
        os.environ.update({name: environment[name]} if name in environment else {})


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def _undying() -> set[threading.Thread]:
    """Threads without whose end the process does not end."""
    return {each for each in threading.enumerate() if not each.daemon}


def _events(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every event, with each kind of what it says in a run. folder: of a run."""
    config = {"input_features": [{"name": "x", "type": "number"}], "trainer": {"epochs": 2}}
    found = {"loss": 0.5, "roc_auc": None}
    for directory in (None, folder):
        for command in ("preprocess", "train", "experiment", "predict", "evaluate", "hyperopt"):
            told = {"command": command, "config": config, "directory": directory}
            yield "run_started", {**told, "address": directory and "s3://bucket/results/run"}
        rounds: tuple[dict[str, Any], ...]
        rounds = ({"training": {}, "validation": {}}, {"validation": {"y": found}})
        for metrics in rounds:
            yield (
                "epoch_finished",
                {"epoch": 1, "step": 10, "metrics": metrics, "directory": directory},
            )
    yield (
        "cache_written",
        {"key": "0" * 16, "directory": str(folder), "rows": {"train": 7}, "seconds": 0.1},
    )
    yield "checkpoint_saved", {"step": 10, "directory": folder}
    record = {"parameters": {"x": 1}, "state": "failed", "score": None, "error": "ValueError: no"}
    yield "trial_finished", {"name": "0001", "record": record, "directory": folder}
    yield "predictions_written", {"path": folder / "predictions.parquet", "rows": 0}
    yield "results_written", {"command": "train", "directory": folder}
    for error in (None, DataError("the column is missing"), KeyboardInterrupt()):
        for directory in (None, folder):
            yield "run_finished", {"command": "train", "directory": directory, "error": error}
