"""The folder of a search: a fresh one, or the one to go on with; held by one driver at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from distcore.workflow.folders import fresh_folder
from distcore_core.contracts import JSON
from distcore_core.errors import UserError
from distcore_core.io.atomic import remove_directory
from distcore_data.locks import locked_if_free
from distcore_data.run_files import SEARCH
from distcore_data.temporaries import LOCK, sweep_tree

CHANGED = (
    "Take it from a backup, or begin a new search: this file says which search the trials beside "
    "it are of."
)

PLAIN = {"type": "one of torch's that make the same steps"}

SECTION = "hyperopt"
FREE_TO_CHANGE = ("backend", "extensions", "plugins", SECTION)
"""Sections of the config that a search may be gone on with otherwise; of `hyperopt` the executor
alone."""


def folder_to_resume(
    root: str | Path, experiment: str, model: str, path: str | Path | None, resume: bool | None
) -> Path | None:
    """The folder of the search to go on with. Raises UserError if it holds none."""
    if path is None and resume:
        base = Path(root) / f"{experiment}_{model}"
        return base if (base / SEARCH).is_file() else None
    if path is None:
        return None
    if not (Path(path) / SEARCH).is_file():
        raise UserError(
            f"{path} holds no search to go on with: there is no {SEARCH}. Give the search's "
            "folder, such as results/hyperopt_run."
        )
    return Path(path)


@contextmanager
def held_folder(
    going_on: Path | None, root: str | Path, experiment: str, model: str
) -> Iterator[Path]:
    """The search's folder, held by a lock. A fresh one is gone again if nothing was begun in it."""
    with ExitStack() as stack:
        folder = going_on or stack.enter_context(fresh_folder(root, experiment, model))
        try:
            with locked_if_free(folder / LOCK) as free:
                if not free:
                    raise UserError(
                        f"Another search is running in {folder}. Wait for it, or begin one in "
                        "another folder."
                    )
                sweep_tree(folder)
                yield folder
        finally:
            if going_on is None and not (folder / SEARCH).exists():
                remove_directory(folder)


def refuse_another(before: JSON, mine: JSON, folder: Path) -> None:
    """Raise UserError naming everything in which the search of a folder was another one."""
    from distcore_data.cache.manifest import same_recipe
    from distcore_torch.training.state import differences

    prepared = "the data or how they are prepared"
    if same_recipe(str(before["cache"]), str(mine["cache"])):
        prepared = "the versions that encode the data"
    named = {"cache": prepared, "random_seed": "random_seed"}
    # An older version noted no cache for a search whose trials have one each, nor which trainer.
    other = [words for name, words in named.items() if before[name] not in (None, mine[name])]
    sections = sorted({*before["config"], *mine["config"]} - {*FREE_TO_CHANGE})
    other += [name for name in sections if before["config"].get(name) != mine["config"].get(name)]
    old, new = before["config"][SECTION], mine["config"][SECTION]
    other += [
        f"{SECTION}.{name}"
        for name in sorted({*old, *new} - {"executor"})
        if old.get(name) != new.get(name)
    ]
    said = [f"{', '.join(other)} differ"] if other else []
    old, new = (each or PLAIN for each in (before.get("trainer", mine["trainer"]), mine["trainer"]))
    if old["type"] != new["type"]:
        said.append(f"backend.trainer was {old['type']} and is {new['type']}")
    else:
        said += differences(old, new, "backend.trainer")
    if said:
        raise UserError(
            f"The search in {folder} is another one: {'; '.join(said)}. "
            "Go on with the config and data it was begun with, or begin a new search."
        )
