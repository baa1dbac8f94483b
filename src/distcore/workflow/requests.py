"""What a call of the Python interface or of the command line asks for, each as one value."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore.workflow import results
from distcore.workflow.going_on import config_to_resume
from distcore.workflow.initial_weights import check_weights
from distcore.workflow.skips import (
    SKIP_HYPEROPT_STATISTICS,
    SKIP_LOG,
    SKIP_MODEL,
    SKIP_PREDICTIONS,
    SKIP_REPORT,
)
from distcore_core.errors import UserError
from distcore_core.io.temporaries import temporary_name
from distcore_data.dataset import Data
from distcore_data.stores import Credentials, given_credentials
from distcore_data.stores.addresses import folder_or_address

if TYPE_CHECKING:
    from distcore.config import RunConfig
    from distcore_core.contracts import JSON, ResultsStore

Location = str | Path
ConfigLike = Location | Mapping[str, Any] | None
"""None only if a run is gone on with."""

RESULTS: Location = "results"
"""Where results come if nobody says."""

OWN_EXTENSIONS = {"report": {SKIP_REPORT, SKIP_HYPEROPT_STATISTICS}}
"""Extensions that runs and searches have without being asked, and what leaves each of them out."""


def own_extensions(skip: Collection[str]) -> tuple[str, ...]:
    """The names of OWN_EXTENSIONS that what is not to be saved does not leave out."""
    return tuple(name for name, skips in OWN_EXTENSIONS.items() if not skips & set(skip))


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """`train` or `experiment` (command). The other fields are the arguments of `distcore.train`."""

    command: str
    config: Any = field(default=None, repr=False)
    dataset: Any = field(default=None, repr=False)
    training_set: Any = field(default=None, repr=False)
    validation_set: Any = field(default=None, repr=False)
    test_set: Any = field(default=None, repr=False)
    data_format: str | None = None
    backend: str | None = None
    random_seed: int | None = None
    gpus: Any = None
    output_directory: Location = RESULTS
    experiment_name: str = "experiment"
    model_name: str = "run"
    model_load_path: Location | None = None
    model_resume_path: Location | None = None
    model: Any = field(default=None, repr=False)
    skip: Collection[str] = frozenset()
    view: str = "interactive"

    @property
    def data(self) -> Data:
        """Raises UserError if nothing, or too much, is named."""
        return Data(
            self.dataset, self.training_set, self.validation_set, self.test_set, self.data_format
        )

    @property
    def output(self) -> Path | str:
        """The folder of experiments, or the address of one in a bucket. Raises UserError."""
        return folder_or_address(self.output_directory, "--output_directory")

    @property
    def going_on(self) -> Path | str | None:
        """The folder, or the address, of the run to go on with. Raises UserError."""
        return (
            folder_or_address(self.model_resume_path, "--model_resume_path")
            if self.model_resume_path
            else None
        )

    @property
    def saves_predictions(self) -> bool:
        return self.command == "experiment" and SKIP_PREDICTIONS not in self.skip

    def to_run(self) -> tuple[RunConfig, Mapping[str, Any] | None]:
        """(the config, the weights of a model given from Python): of the run to go on with if no
        config is given; with nobody who listens, and so nobody who logs, if no log is to be
        saved. Raises UserError if another place or other weights are asked for than that run's."""
        config, weights = config_to_resume(self.config, self.going_on), None
        if self.going_on is not None:
            refuse_elsewhere(self.output, self.going_on)
            if self.model_load_path is not None:
                raise UserError(
                    "--model_load_path says with which weights a run begins, and the one in "
                    f"{self.going_on} (--model_resume_path) has begun. Leave one of them out."
                )
        if self.model is not None:
            config, weights = with_model(config, self.model, saved=SKIP_MODEL not in self.skip)
        if SKIP_LOG in self.skip:
            config = replace(config, extensions=())
        return config, weights

    def start(
        self, config: RunConfig
    ) -> tuple[Path | ResultsStore | None, JSON | None, Mapping[str, JSON]]:
        """(the model to start from, what the receipt says of it, its manifest). Raises
        ArtifactError, before any work, if there is no whole one."""
        if self.model_load_path is None:
            return None, None, {}
        from distcore_data.model_folder import model_place

        place = model_place(self.model_load_path, config.backend.credentials)
        where = os.path.abspath(place) if isinstance(place, Path) else place.url
        sha256, manifest = check_weights(place)
        return place, {"path": where, "sha256": sha256}, manifest


@dataclass(frozen=True, kw_only=True)
class AnswerRequest:
    """`predict` or `evaluate` (command). The other fields are the arguments of
    `distcore.predict`."""

    command: str
    model_path: Location
    dataset: Any = field(repr=False)
    data_format: str | None = None
    batch_size: int | None = None
    backend: str | Mapping[str, Any] | None = None
    gpus: Any = None
    trust: bool = False
    output_directory: Location = RESULTS
    skip: Collection[str] = frozenset()
    view: str = "interactive"
    credentials: Any = field(default=None, repr=False)
    output_file: Location | None = None
    keep: Sequence[str] = ()
    overwrite: bool = False

    @property
    def output(self) -> Path | str:
        """The folder of the results, or the address of one in a bucket. Raises UserError."""
        folder, slash, _ = str(self.output_file or "").rpartition("/")
        if slash:
            return folder_or_address(folder or "/", "--output_file")
        return folder_or_address(
            self.output_directory if self.output_file is None else ".", "--output_directory"
        )

    @property
    def file_name(self) -> str:
        """Of the predictions, whose ending says how they are written. Raises UserError for
        another one."""
        if self.output_file is None:
            return results.PREDICTIONS
        name = str(self.output_file).rpartition("/")[2]
        if not name.endswith((".csv", ".parquet")) or name.startswith("."):
            raise UserError(
                f"--output_file {self.output_file}: name a file that ends in .csv or .parquet."
            )
        if isinstance(self.output, Path):
            try:
                os.lstat(temporary_name(self.output / name))
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    raise UserError(
                        f"--output_file {self.output_file}: file name too long. Give a shorter one."
                    ) from None
        return name

    @property
    def opened_with(self) -> Credentials | None:
        """What buckets are opened with; None: what the environment gives. Raises UserError."""
        return given_credentials(self.credentials)


def refuse_elsewhere(output: Path | str, going_on: Path | str) -> None:
    """Raise UserError if results are asked for in another folder than that of the run, or of the
    search, that is gone on with. What is asked for by nobody is RESULTS."""
    if isinstance(output, Path) and isinstance(going_on, Path):
        run = going_on.resolve()
        same = output == Path(RESULTS) or output.resolve() in (run.parent, run)
    else:
        place, run_place = str(output).rstrip("/"), str(going_on).rstrip("/")
        same = place in (str(RESULTS), run_place, run_place.rpartition("/")[0])
    if not same:
        raise UserError(
            f"--output_directory {output} is not where {going_on} (--model_resume_path) lies, and "
            "what goes on stays in its folder. Leave --output_directory out."
        )


def with_model(config: Any, model: Any, saved: bool) -> tuple[RunConfig, Mapping[str, Any] | None]:
    """The config with a class or an instance given from Python as its model, and the instance's
    weights."""
    from distcore.config import Ref, load_config
    from distcore_core.registry.manager import Plugins

    read = load_config(config)
    section, weights = Plugins(read.plugins_block).describe_model(model, saved)
    options = {name: value for name, value in section.items() if name != "type"}
    return replace(read, model=Ref(section["type"], options)), weights
