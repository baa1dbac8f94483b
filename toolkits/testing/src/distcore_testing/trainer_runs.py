"""The runs that the suite of trainers looks at."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from distcore_testing import data
from distcore_testing.app import app

OUTPUTS = (
    {"name": "y", "type": "binary"},
    {"name": "k", "type": "category"},
    {"name": "z", "type": "number"},
)


class TrainerRuns:
    """See `TrainerSuite`."""

    name: str
    options: Mapping[str, Any] = {}
    trainer: Mapping[str, Any] = MappingProxyType(
        {"epochs": 12, "batch_size": 32, "learning_rate": 0.01}
    )
    outputs: tuple[dict[str, Any], ...] = OUTPUTS
    accuracy = 0.68
    deterministic = True
    random = True
    weighs_losses = True

    @classmethod
    def config(cls, folder: Path, **changes: Any) -> dict[str, Any]:
        """A config for the tiny data; `changes` replace whole sections."""
        outputs = [dict(each) for each in cls.outputs]
        made = data.config(str(folder / "cache"), output_features=outputs)
        made["trainer"] = dict(cls.trainer)
        made["backend"]["trainer"] = {"type": cls.name, **cls.options}
        return made | changes

    @classmethod
    def trained(
        cls, folder: Path, seed: int = 42, model: Any = None, resume: Any = None, **changes: Any
    ) -> Any:
        """The outcome of a short training on the same rows, whatever the seed. model: to start
        from. resume: the run to go on with."""
        asked = {"random_seed": seed, "model_load_path": model, "model_resume_path": resume}
        return cls._trained(cls.config(folder, **changes), folder, **asked)

    @classmethod
    def _trained(
        cls, config: Any, folder: Path, splits: Sequence[Any] | None = None, **asked: Any
    ) -> Any:
        """The outcome of a training. splits: rows for training, validation and test. asked: more
        arguments of `distcore.train`."""
        whole = data.table()
        place = {} if asked.get("model_resume_path") else {"output_directory": folder / "results"}
        train, validation, test = splits or (
            whole.slice(0, 400),
            whole.slice(400, 100),
            whole.slice(500),
        )
        return app().train(
            config,
            training_set=train,
            validation_set=validation,
            test_set=test,
            **place,
            **asked,
        )

    @pytest.fixture(scope="class")
    @classmethod
    def short(cls, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
        """Digests of the model of a short training that others are compared with."""
        return digests(cls.trained(tmp_path_factory.mktemp("short"), trainer=cls.brief()).model)

    @classmethod
    def brief(cls) -> dict[str, Any]:
        """The `trainer` section for an epoch or two."""
        return {**cls.trainer, "epochs": 2}

    @classmethod
    def experiment(cls, folder: Path, **changes: Any) -> Any:
        """The outcome of a whole experiment in this folder."""
        return app().experiment(
            cls.config(folder, **changes), dataset=data.table(), output_directory=folder / "results"
        )

    @pytest.fixture(scope="class")
    @classmethod
    def outcome(cls, tmp_path_factory: pytest.TempPathFactory) -> Any:
        """One experiment that the tests look at."""
        return cls.experiment(tmp_path_factory.mktemp("experiment"))


def digests(folder: Path) -> dict[str, str]:
    """sha256 of every file that a trainer saved."""
    files = [path for path in sorted(folder.iterdir()) if path.name != "model.json"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
