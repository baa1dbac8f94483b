"""What a call of the Python interface or of the command line asks for, each as one value."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore import results
from distcore.dataset import Data

if TYPE_CHECKING:
    from distcore.config import RunConfig

Location = str | Path


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """`train` or `experiment` (command). The other fields are the arguments of `distcore.train`."""

    command: str
    config: Any = field(repr=False)
    dataset: Any = field(default=None, repr=False)
    training_set: Any = field(default=None, repr=False)
    validation_set: Any = field(default=None, repr=False)
    test_set: Any = field(default=None, repr=False)
    data_format: str | None = None
    backend: str | None = None
    random_seed: int | None = None
    gpus: Any = None
    output_directory: Location = "results"
    experiment_name: str = "experiment"
    model_name: str = "run"
    model_load_path: Location | None = None
    model_resume_path: Location | None = None
    model: Any = field(default=None, repr=False)
    skip: Collection[str] = frozenset()
    view: str = "interactive"

    @property
    def data(self) -> Data:
        """Raises UserError where nothing, or too much, is named."""
        return Data(self.dataset, self.training_set, self.validation_set, self.test_set, self.data_format)

    @property
    def results(self) -> Location:
        """The folder that will be written to, or the one around it."""
        return self.model_resume_path or self.output_directory

    def to_run(self) -> tuple[Any, Mapping[str, Any] | None]:
        """(the config, the weights of a model given from Python): of the run to go on with where no config is given;
        with nobody who listens, and so nobody who logs, where no log is to be saved."""
        from distcore.config import load_config

        config, weights = results.config_to_resume(self.config, self.model_resume_path), None
        if self.model is not None:
            config, weights = with_model(config, self.model, saved="skip_save_model" not in self.skip)
        if "skip_save_log" in self.skip:
            config = replace(load_config(config), extensions=())
        return config, weights


@dataclass(frozen=True, kw_only=True)
class AnswerRequest:
    """`predict` or `evaluate` (command). The other fields are the arguments of `distcore.evaluate`."""

    command: str
    model_path: Location
    dataset: Any = field(repr=False)
    data_format: str | None = None
    batch_size: int | None = None
    backend: str | Mapping[str, Any] | None = None
    gpus: Any = None
    trust: bool = False
    output_directory: Location = "results"
    skip: Collection[str] = frozenset()
    view: str = "interactive"

    @property
    def predictions(self) -> Path | None:
        """The file of the predictions, or None where they are not to be saved."""
        return None if "skip_save_predictions" in self.skip else Path(self.output_directory) / "predictions.parquet"


def with_model(config: Any, model: Any, saved: bool) -> tuple[RunConfig, Mapping[str, Any] | None]:
    """The config with a class or an instance given from Python as its model, and the instance's weights."""
    from distcore.config import Ref, load_config
    from distcore.plugins import Plugins

    read = load_config(config)
    section, weights = Plugins(read.plugins_block).describe_model(model, saved)
    options = {name: value for name, value in section.items() if name != "type"}
    return replace(read, model=Ref(section["type"], options)), weights
