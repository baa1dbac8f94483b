"""summary.json: what a run came to, for the report and for notebooks. What the test split adds
to it is in `summary_of_test`."""

from __future__ import annotations

import resource
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import JSON
from distcore_data.figures import counted
from distcore_data.memory import UNIT_OF_PEAK
from distcore_data.run_files import TRAINING_LOG
from distcore_data.seals import read_lines

if TYPE_CHECKING:
    from distcore.workflow.session import Session
    from distcore_core.contracts import TrainResult

LARGEST_YAML = 65_536


def summary_of(session: Session, trained: TrainResult, resumed: bool = False) -> JSON:
    """What is known when training has ended: the run, its best round, scores, time and memory,
    the user's YAML.

    resumed: whether the run was gone on with, so that its stages are those of its last start."""
    last = last_round(session, trained)
    scores = _training_scores(trained, last)
    stages = [each._asdict() for each in session.progress.stages_finished]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT_OF_PEAK
    return {
        "command": session.command,
        "backend": session.backend_name,
        "best": {
            **(_best_of(last) if last else {}),
            **trained.best,
            "evaluation": last.get("best_evaluation"),
        },
        "evaluations": last.get("evaluation"),
        "counted": counted(last.get("unit", "")),
        "epochs": trained.epochs,
        "scores": scores,
        "stages": stages,
        "resumed": resumed,
        "peak_memory_bytes": peak,
        "yaml": users_yaml(session),
    }


def users_yaml(session: Session) -> str | None:
    """The config as the user wrote it; None if it is no file, or holds credentials."""
    source = Path(session.config.source)
    if (
        session.config.backend.cache_credentials
        or session.config.source == "config"  # a mapping or text, whatever file has that name
        or not source.is_file()
        or source.stat().st_size > LARGEST_YAML
    ):
        return None
    text = source.read_text(encoding="utf-8", errors="replace")
    if "credentials" in text:
        return None
    places = session.config.source_map.values()
    settings = sorted(
        {
            str(place.path[0])
            for place in places
            if place.path and str(place.path[0]).startswith("--set ")
        }
    )
    return text + "".join(f"\n# changed by {each}=…" for each in settings)


def last_round(session: Session, trained: TrainResult) -> JSON:
    """The last evaluation round, as `training_log.jsonl` has it; {} if there was none.

    The log is asked where a run was gone on with after its last one, which a kill may have kept
    from its results."""
    if session.progress.rounds:
        return asdict(session.progress.rounds[-1])
    logged = read_lines(session.directory / TRAINING_LOG) if session.directory is not None else []
    return next((each for each in reversed(logged) if each["step"] <= trained.steps), {})


def is_of_the_model(last: JSON) -> bool:
    """Whether the last round is of the model that is kept: trees are evaluated every so many, and
    at the end those that are kept. last: as `last_round` has it."""
    best = last.get("best_evaluation")
    return best is not None and best == (last.get("scored") or last.get("evaluation"))


def _best_of(last: JSON) -> JSON:
    """What the rounds say of the best one, for a trainer whose result says less."""
    return {"feature": last["feature"], "metric": last["metric"], "value": last["best"]}


def _training_scores(trained: TrainResult, last: JSON) -> JSON:
    """{output feature: {metric: {split: value in the best round}}}. last: the last one."""
    scores: JSON = {}
    best, is_last = trained.best, is_of_the_model(last)
    # A plugin's trainer may go by the training split all the same.
    judged = "validation" if last.get("best_evaluation") is None else last["split"]
    curves = trained.statistics.get(judged, {})
    for split, outputs in trained.statistics.items():
        for output, metrics in outputs.items():
            for metric, values in metrics.items():
                count = len(values)
                place = count - 1 if is_last else _best_place(curves, best, count)
                if values and isinstance(values[place], int | float):
                    scores.setdefault(output, {}).setdefault(metric, {})[split] = values[place]
    return scores


def _best_place(judged: Any, best: JSON, count: int) -> int:
    """The index of the best round among `count`, the first of equals; the last one if none is.
    judged: {output feature: {metric: [a value a round]}} of the split that picks it."""
    values = judged.get(best.get("feature"), {}).get(best.get("metric"), [])
    if best.get("value") in values and len(values) == count:
        return int(values.index(best["value"]))
    return count - 1
