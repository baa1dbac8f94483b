"""What a search leaves: its statistics, best first, the best trial's model, a table."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from distcore.search.trial import TrialWork, check_model, finish_stopped
from distcore.workflow import results
from distcore.workflow.skips import SKIP_HYPEROPT_STATISTICS, SKIP_MODEL
from distcore_core.contracts import JSON
from distcore_core.errors import ArtifactError, DistcoreError, TrainingError
from distcore_core.io.atomic import DirectoryBuilder
from distcore_data.blame import one_line
from distcore_data.figures import number, parameter
from distcore_data.run_files import SEARCH_STATISTICS
from distcore_search.records import TRIALS, read_record, recount, statistics_of

if TYPE_CHECKING:
    from distcore.workflow.session import Session

MODEL = "model"
log = logging.getLogger("distcore")


@dataclass(frozen=True)
class SearchOutcome:
    """What `hyperopt` gives back.

    directory: the search's folder. trials: their records, best first: {"name", "parameters",
    "state", "score", "rounds", "seconds", "error", "evaluation"}. model: the best trial's model
    folder; None if it was not saved.
    metric: what the score is.
    """

    directory: Path
    trials: Sequence[JSON] = field(repr=False)
    model: Path | None
    metric: str = "score"

    @property
    def best(self) -> JSON:
        """The best trial's record. Raises TrainingError if no trial has a score."""
        if not self.trials or self.trials[0]["score"] is None:
            raise TrainingError(f"No trial of {self.directory} has a score.")
        return self.trials[0]

    def _repr_html_(self) -> str:
        from distcore.workflow.shown import html_of_search

        return html_of_search(self.directory, rows(self.trials, self.metric))


def collect(work: TrialWork) -> list[JSON]:
    """The records of every trial that was begun, best first."""
    folder = work.directory / TRIALS
    folders = sorted(each for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []
    return work.objective.ordered(record for record in map(read_record, folders) if record)


def conclude(
    session: Session,
    work: TrialWork,
    section: JSON,
    skip: Collection[str],
    interrupted: bool = False,
) -> SearchOutcome:
    """Write everything that a search leaves, also one that was interrupted.

    Raises TrainingError, after that, if the best trial's model is damaged, or is not the one
    that had its score."""
    counted = (recount(work.folder(each["name"]), work.objective) for each in collect(work))
    records, model, trouble = work.objective.ordered(counted), None, None
    if interrupted:
        model = delivered_before(work.directory / MODEL, records)
    elif SKIP_MODEL not in skip:
        try:
            model = _best_model(work, records)
        except ArtifactError as error:
            trouble = error
    if SKIP_HYPEROPT_STATISTICS not in skip:
        best = records[0]["name"] if records and records[0].get("score") is not None else None
        statistics = {
            "hyperopt_config": section,
            "objective": {
                name: getattr(work.objective, name)
                for name in ("feature", "metric", "goal", "split")
            },
            "best_trial": best,
            "model": MODEL if model is not None else None,
            "hyperopt_results": [_result(work, record) for record in records],
        }
        results.write_json(work.directory / SEARCH_STATISTICS, statistics)
    session.results_written()
    if trouble is not None:
        raise TrainingError(
            f"{trouble} The search is over, and its results are in {work.directory}, but no model "
            "was delivered. Put it back from a backup and go on with --model_resume_path "
            f"{work.directory}; or train once with the values of that trial, which trial.json in "
            "its folder has."
        ) from trouble
    return SearchOutcome(work.directory, records, model, work.objective.metric)


def delivered_before(there: Path, records: Sequence[JSON]) -> Path | None:
    """The model that an earlier end of the search left, if it is the best trial's; it is told if
    it is another one's.

    records: best first; none if no trial was begun."""
    if not records or not there.exists():
        return None
    try:
        check_model(there, {"model": None, **records[0]})
    except ArtifactError:
        log.warning(
            "%s is what an earlier end of this search left, and not the model of the trial that "
            "is the best now. Go on with the search to have that.",
            there,
        )
        return None
    return there


def _result(work: TrialWork, record: JSON) -> JSON:
    """Ludwig's four keys, and ours."""
    folder = work.folder(record["name"])
    ours = ("state", "rounds", "round", "seconds", "error")
    return {
        "parameters": record["parameters"],
        "metric_score": record.get("score"),
        "training_stats": statistics_of(folder),
        "eval_stats": record.get("evaluation", {}),
        "trial": record["name"],
        "directory": str(folder.relative_to(work.directory)),
        **{name: record.get(name) for name in ours},
    }


def _best_model(work: TrialWork, records: Sequence[JSON]) -> Path | None:
    """The model of the best trial that has one, copied to the search's own folder; None if there
    is none."""
    for record in records:
        if record.get("score") is None:
            return None
        source = work.folder(record["name"]) / MODEL
        if record["state"] == "stopped" and "model" not in record:
            try:
                finish_stopped(work, record)
            except Exception as error:  # noqa: BLE001 - as where trials run: it is this trial's
                words = str(error) if isinstance(error, DistcoreError) else one_line(error)
                log.warning("The model of trial %s cannot be written: %s", record["name"], words)
        if "model" in record:
            return _delivered(source, work.directory / MODEL, record)
        log.warning("Trial %s has the best score, but its model was not saved.", record["name"])
    return None


def _delivered(source: Path, target: Path, record: JSON) -> Path:
    """Copy a trial's model. Raises ArtifactError if the copy is not whole, or not of the
    record's score."""
    try:
        with DirectoryBuilder(target) as made:
            try:
                shutil.copytree(source, made, dirs_exist_ok=True)
                check_model(made, record)
            except ArtifactError as error:
                raise ArtifactError(str(error).replace(str(made), str(source))) from error
    except FileNotFoundError:
        raise ArtifactError(f"{source}, the model of the best trial, is missing.") from None
    except OSError as error:  # of several files copytree gives (from, to, why)
        inner = error.args[0] if isinstance(error, shutil.Error) else []
        why = error.strerror or "; ".join(str(each[-1]) for each in inner) or str(error)
        raise ArtifactError(
            f"{source}, the model of the best trial, cannot be copied to {target}: {why}."
        ) from error
    return target


# ------------------------------------------------------------------ for people


def in_words(parameters: JSON) -> str:
    """`trainer.learning_rate=0.00123, combiner.num_fc_layers=2`."""
    return ", ".join(f"{name}={parameter(value)}" for name, value in parameters.items())


def rows(records: Sequence[JSON], metric: str) -> list[tuple[str, ...]]:
    """A table: a line a trial, best first."""
    names = list(dict.fromkeys(name for record in records for name in record["parameters"]))
    head = ("TRIAL", "STATE", metric.upper(), "ROUNDS", "SECONDS", *names)
    return [head, *(_row(record, names) for record in records)]


def _row(record: JSON, names: Sequence[str]) -> tuple[str, ...]:
    score, seconds = record.get("score"), record.get("seconds")
    state = "interrupted" if record["state"] == "running" else record["state"]
    return (
        record["name"],
        state,
        "–" if score is None else number(score, 6),
        str(record.get("rounds", "–")),
        "–" if seconds is None else f"{seconds:.1f}",
        *(parameter(record["parameters"].get(name, "–")) for name in names),
    )


def raise_without_scores(outcome: SearchOutcome) -> None:
    """Raise TrainingError if no trial has a score: why, and what to do."""
    failed = [each for each in outcome.trials if each["state"] == "failed"]
    if failed and len(failed) == len(outcome.trials):
        which = "The one trial failed"
        if len(failed) > 1:
            which = f"All {len(failed)} trials failed; the first"
        advice = "correct the config, and begin a new search"
        if any(each.get("by_the_system") for each in failed):
            advice = f"mend that, and go on with --model_resume_path {outcome.directory}"
        raise TrainingError(
            f"{which} with: {failed[0]['error']} See {outcome.directory}; {advice}."
        )
    if all(each.get("score") is None for each in outcome.trials):
        others = f"{len(failed)} failed, the first with: {failed[0]['error']} " if failed else ""
        which = "Each other one" if failed else "each"
        raise TrainingError(
            f"No trial of {outcome.directory} has a score: {others}{which} was stopped before it "
            "had one. Give the search more time, as hyperopt.executor.time_budget_s, and begin a "
            "new one."
        )
