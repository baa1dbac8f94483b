"""Records of a search's trials: what executors share with the function that runs one.

<search>/trials/<name>/
  trial.json      parameters, state, score; rewritten whole at every change
  rounds.jsonl    what each evaluation round found, as it came
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distcore_core.contracts import JSON
from distcore_core.errors import TrainingError, UserError
from distcore_core.io.atomic import write_file
from distcore_data.os_errors import explained
from distcore_data.run_files import TRAINING_STATISTICS, TRIAL
from distcore_data.seals import read_sealed, sealed
from distcore_search.objective import Objective
from distcore_search.rounds import Round, rounds_of, seconds_of
from distcore_search.space import parse_spaces, values_of
from distcore_search.vouched import read_vouched

ROUNDS, TRIALS, LOG = "rounds.jsonl", "trials", "log.txt"
ENDED = frozenset({"finished", "stopped", "failed"})
"""States of a record that is final. "running" is also what a kill leaves behind."""

ELSEWHERE = "go on with a copy of the search's folder on another disk (--model_resume_path)"
"""What can be done if the search's own folder takes no more."""

log = logging.getLogger("distcore")


@dataclass(frozen=True, kw_only=True)
class SearchWork:
    """What an executor reads of a search's work (`SearchJob.work`); whoever runs trials adds what
    they need. Pickles.

    parameters: of the `hyperopt` section, as written. directory: the search's folder. places: what
    trials read and write, as `Backend.check_storage` takes them. given: options of `trainer` that a
    trial has where its config names none, such as the scheduler's limit as `epochs`; None: the
    search was begun by a version that kept none of them, and goes on as it was begun.
    """

    parameters: JSON
    objective: Objective
    directory: Path
    places: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
    given: JSON | None = None

    def folder(self, name: str) -> Path:
        """A trial's folder."""
        return self.directory / TRIALS / name


def log_of(folder: Path) -> Path:
    """Where a trial's log goes, in its folder, which is made; a link there is removed, as somebody
    else's file would be written to."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOG
    if path.is_symlink():
        path.unlink()
    return path


def read_record(folder: Path) -> JSON:
    """A trial's record.

    Args:
        folder: The trial's (`SearchWork.folder`).

    Returns:
        {"name", "parameters", "raw", "state", …}; {} if it was never begun.

    Raises:
        UserError: It is not as it was written.
    """
    advice = (
        f"Take it from a backup. Or remove the folder {folder} and go on with the search: another "
        "trial is run in its place, perhaps of other values. Those of this one are in the config "
        "of its description.json, if that is there."
    )
    try:
        return read_sealed(folder / TRIAL, advice)
    except FileNotFoundError:
        return {}


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Replace a trial's record, whole or not at all."""
    path = folder / TRIAL
    with explained(folder, TRIAL, TrainingError, advice=ELSEWHERE):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            write_file(path, sealed(dict(record)))
        except (TypeError, ValueError) as error:
            raise UserError(
                f"{path} cannot be written as JSON: {error}. Use plain, finite values."
            ) from error


def begin_record(work: SearchWork, name: str, raw: Mapping[str, Any]) -> JSON:
    """The trial's record, written if there is none yet: a process that dies at once leaves a trial
    all the same.

    Args:
        raw: The values that the executor chose, of which `values_of` makes the config's.
    """
    folder = work.folder(name)
    record = read_record(folder)
    if not record:
        parameters = values_of(parse_spaces(work.parameters), raw)
        record = {"name": name, "parameters": parameters, "raw": dict(raw), "state": "running"}
        write_record(folder, record)
    return record


def end_record(
    folder: Path,
    state: str,
    objective: Objective,
    error: str | None = None,
    seconds: float = 0.0,
    *,
    by_the_system: bool = False,
) -> JSON:
    """Say of a trial that does not say so itself that it has ended. One that has ended meanwhile
    keeps its own word.

    Args:
        state: "stopped" early, or "failed" (its process died).
        objective: What is searched for: the record's score is the best of the trial's rounds.
        error: Why, for people.
        seconds: Since this attempt at the trial began, if they are known: no fewer count than its
            rounds tell.
        by_the_system: It failed for what the system is to blame for: see `begin_again`.

    Returns:
        The record as it is now.
    """
    record = read_record(folder)
    if record.get("state") in ENDED:
        return record
    rounds = rounds_of(folder / ROUNDS)
    told = _told_by_rounds(rounds, state, objective)
    record |= {"state": state, **told, "error": error}
    if by_the_system:
        record["by_the_system"] = True
    seconds += record.get("seconds", 0.0)
    record["seconds"] = round(max(seconds, seconds_of(rounds)), 3)
    write_record(folder, record)
    return record


def recount(folder: Path, objective: Objective) -> JSON:
    """Once its process has ended, have the record of a trial that was stopped count every round
    there is: it trains on for a moment after it is stopped, and its model is of the best of all."""
    record = read_record(folder)
    if record.get("state") != "stopped":
        return record
    counted = {**record, **_told_by_rounds(rounds_of(folder / ROUNDS), "stopped", objective)}
    if counted != record:
        write_record(folder, counted)
    return counted


def _told_by_rounds(rounds: Sequence[Round], state: str, objective: Objective) -> JSON:
    score, place = objective.best_of([objective.of_round(each.metrics) for each in rounds])
    best = rounds[place].metrics if place is not None else {}
    return {
        "rounds": len(rounds),
        "round": None if place is None else place + 1,
        # A test split is evaluated with a whole model only, so a trial without one has no score
        # there.
        "score": score if state == "stopped" and objective.split != "test" else None,
        "evaluation": best.get(objective.evaluated, {}),
    }


def begin_again(work: SearchWork) -> list[str]:
    """Have trials that failed for what the system was to blame for, as of a full disk, stand as
    those of a killed search do, to be gone on with; their names."""
    names = []
    folder = work.directory / TRIALS
    for trial in sorted(folder.iterdir()) if folder.is_dir() else ():
        record = read_record(trial)
        if record.get("state") == "failed" and record.get("by_the_system"):
            left_out = ("by_the_system", "error")
            kept = {name: value for name, value in record.items() if name not in left_out}
            write_record(trial, {**kept, "state": "running"})
            names.append(trial.name)
    return names


def statistics_of(folder: Path) -> JSON:
    """{split: {feature: {metric: [a value a round]}}} of a trial, also of one that did not come
    to its end."""
    path = folder / TRAINING_STATISTICS
    if path.exists():
        try:
            found: JSON = read_vouched(path)
        except UserError as error:
            log.warning(
                "%s The search's statistics are made from %s instead.", error, folder / ROUNDS
            )
        else:
            return found
    made: JSON = {}
    for each in rounds_of(folder / ROUNDS):
        for split, features in each.metrics.items():
            for feature, metrics in features.items():
                for metric, value in metrics.items():
                    made.setdefault(split, {}).setdefault(feature, {}).setdefault(
                        metric, []
                    ).append(value)
    return made
