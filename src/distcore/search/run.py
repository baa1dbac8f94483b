"""The story of a search: read the section, hold its folder, run it. Everything that can be
refused is, beforehand."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from distcore.config import document_of
from distcore.search.driver import Search
from distcore.search.folders import CHANGED, SECTION, folder_to_resume, held_folder
from distcore.search.outcome import SearchOutcome
from distcore.search.section import read_section
from distcore.workflow.arguments import told
from distcore.workflow.prepare import check_storage
from distcore.workflow.requests import ConfigLike, own_extensions, refuse_elsewhere
from distcore.workflow.session import open_session
from distcore_core.errors import UserError
from distcore_data.dataset import Data
from distcore_data.own_files import as_before
from distcore_data.run_files import SEARCH
from distcore_data.seals import read_sealed
from distcore_data.stores.addresses import folder_only
from distcore_torch.signals import Stoppable
from distcore_torch.training.launched import launched_apart, launched_rank

NO_BUCKET = (
    "A search lies in a folder, because its trials take turns by file locks there; its cache may "
    "lie in a bucket (backend.cache_dir), and so may the results of `distcore train`."
)


@told
def hyperopt(
    config: ConfigLike = None,
    dataset: Any = None,
    *,
    training_set: Any = None,
    validation_set: Any = None,
    test_set: Any = None,
    data_format: str | None = None,
    backend: str | None = None,
    random_seed: int | None = None,
    gpus: Any = None,
    output_directory: str | Path = "results",
    experiment_name: str = "hyperopt",
    model_name: str = "run",
    model_resume_path: str | Path | None = None,
    resume: bool | None = None,
    skip: Collection[str] = frozenset(),
    view: str = "interactive",
) -> SearchOutcome:
    """Search the space of the config's `hyperopt` section.

    Args:
        config, dataset, …: As those of `train`.
        model_resume_path: Go on with the search in that folder: trials that ended are not repeated,
            one that was interrupted goes on from its last checkpoint.
        resume: The same for `<output_directory>/<experiment_name>_<model_name>`, if that holds a
            search.

    Returns:
        Where the search lies, its trials, and the best one's model.

    Raises:
        ConfigError: Before anything is run: a value that could be tried does not resolve.
        TrainingError: Every trial failed.
        Stopped: After ctrl-C or SIGTERM (a KeyboardInterrupt); the results so far are written.
    """
    data = Data(dataset, training_set, validation_set, test_set, data_format).held()
    output = folder_only(output_directory, "--output_directory", NO_BUCKET)
    before = (
        folder_only(model_resume_path, "--model_resume_path", NO_BUCKET)
        if model_resume_path
        else None
    )
    going_on = folder_to_resume(output, experiment_name, model_name, before, resume)
    if before is not None:
        refuse_elsewhere(output, before)
    begun = None if going_on is None else read_sealed(going_on / SEARCH, CHANGED)["config"]
    section = read_section(document_of(begun if config is None else config))
    if begun is not None:
        section = section.in_order_of(begun[SECTION]["parameters"])
    stated = section.values.get("backend")
    named = backend or (stated.get("type") if isinstance(stated, Mapping) else stated)
    _refuse_launchers(named)
    with Stoppable(), ExitStack() as stack:
        stack.enter_context(as_before(output))
        session = stack.enter_context(
            open_session(
                SECTION,
                section.values,
                backend=backend,
                random_seed=random_seed,
                gpus=gpus,
                view=view,
                own=own_extensions(skip),
            )
        )
        search = Search(section, session, data, skip)
        check_storage(session, data, going_on or output)
        directory = stack.enter_context(held_folder(going_on, output, experiment_name, model_name))
        found = search.run(directory.absolute(), going_on is not None, shown=directory)
        if found.model is None:
            return replace(found, directory=directory)
        model = directory / found.model.relative_to(found.directory)
        return replace(found, directory=directory, model=model)


def _refuse_launchers(backend: str | None) -> None:
    """backend: the one that is named; `local` makes a search of its own of each process that it
    does not join, and says so."""
    if launched_rank() is not None or (launched_apart() is not None and backend != "local"):
        raise UserError(
            "A search starts its trials itself, but this process is one of those that a launcher "
            "(torchrun, horovodrun, mpirun) started. Start distcore hyperopt by itself, and say in "
            "backend.trainer how many workers a trial has."
        )
