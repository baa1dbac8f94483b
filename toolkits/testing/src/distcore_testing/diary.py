"""An extension that writes down what it hears of training: an object of JSON a line. It also looks
what `Trainer.fit` changes that is not its own."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)
BY_TORCH = "TORCHINDUCTOR_"
"""So begin variables that torch itself sets when a process makes its first optimizer."""


class DiaryOptions(BaseModel):
    """path: of the file, which is added to. answer: to each evaluation: why training should end;
    "": it should go on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    answer: str = ""


class Diary:
    """Hears what is told in rank 0."""

    def __init__(self, options: DiaryOptions) -> None:
        self.path, self.answer = options.path, options.answer

    @hookimpl
    def epoch_finished(
        self, epoch: int, step: int, metrics: Mapping[str, Any], directory: Path | None
    ) -> str | None:
        """All of it."""
        self.write("epoch_finished", epoch=epoch, step=step, metrics=metrics, directory=directory)
        return self.answer or None

    @hookimpl
    def checkpoint_saved(self, step: int, directory: Path) -> None:
        """And what lies in the folder."""
        self.write("checkpoint_saved", step=step, directory=directory, files=lengths(directory))

    @hookimpl(wrapper=True)
    def distcore_make_trainer(self) -> Generator[None, Any, Any]:
        """The run's trainer, whose `fit` is looked at."""
        made = yield
        return made and _Watched(made, self)

    def write(self, event: str, **told: Any) -> None:
        """A line."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **told}, default=str) + "\n")


class _Watched:
    """A trainer like another one; the event `fit` has the names of what it left changed."""

    def __init__(self, inner: Any, diary: Diary) -> None:
        self._inner, self._diary = inner, diary

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._inner, name)

    def fit(self, job: Any, *rest: Any) -> Any:
        """As the other one does."""
        before = {**_sections(job.config), **_of_the_process()}
        result = self._inner.fit(job, *rest)
        after = {**_sections(job.config), **_of_the_process()}
        changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        self._diary.write("fit", changed=sorted(changed), best=result.best)
        return result


def lengths(folder: Path) -> dict[str, int]:
    """{file below the folder: its length}."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def _sections(config: Mapping[str, Any]) -> dict[str, str]:
    return {f"job.config[{name!r}]": json.dumps(each) for name, each in config.items()}


def _of_the_process() -> dict[str, Any]:
    """What everything in a process shares, by the names that people know it by."""
    import numpy as np
    import torch

    return {
        "random's state": random.getstate(),
        "numpy.random's state": repr(np.random.get_state(legacy=False)),
        "torch's random state": torch.random.get_rng_state().tolist(),
        "torch.get_num_threads()": torch.get_num_threads(),
        "torch.get_default_dtype()": torch.get_default_dtype(),
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "torch.are_deterministic_algorithms_enabled()": (
            torch.are_deterministic_algorithms_enabled()
        ),
        **{
            f"os.environ[{name!r}]": value
            for name, value in os.environ.items()
            if not name.startswith(BY_TORCH)
        },
        "os.getcwd()": os.getcwd(),
        "the threads that keep the process alive": sorted(
            each.name for each in threading.enumerate() if not each.daemon
        ),
        "the signals' handlers": [
            signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)
        ],
    }


@hookimpl
def distcore_make_extension(name: str, options: DiaryOptions) -> Any:
    """The extension, whatever it is called."""
    return Diary(options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    """Of its options."""
    return DiaryOptions
