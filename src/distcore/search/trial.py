"""One trial of a search, in whatever process an executor gave it: its config, its training, its
record.

<search>/trials/<name>/   an experiment's folder (description.json, checkpoints/, model/,
                          training_statistics.json), and
  trial.json              parameters, state, score, digest of the model; sealed, rewritten whole at
                          every change
  rounds.jsonl            what each evaluation round found, as it came

A trial that is found begun goes on from its last checkpoint; one that has ended is left as it is.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distcore.search.substitute import Values, substitute
from distcore.workflow import results
from distcore.workflow.folders import refuse_anothers_checkpoints
from distcore.workflow.session import Session, open_session
from distcore.workflow.skips import SKIP_EVAL_STATS, SKIP_MODEL
from distcore.workflow.summary import is_of_the_model, last_round
from distcore_core.contracts import JSON, TrainResult
from distcore_core.errors import ArtifactError, CheckpointError, TrainingError
from distcore_core.io.atomic import remove_directory
from distcore_core.io.digest import digest_file
from distcore_data.blame import one_line
from distcore_data.cache import Cache
from distcore_data.dataset import Data
from distcore_data.locks import locked
from distcore_data.model_folder import read_manifest
from distcore_data.os_errors import is_of_the_system
from distcore_data.printable import printable
from distcore_data.run_files import MODEL_JSON, TEST_STATISTICS
from distcore_data.seals import refuse_link
from distcore_data.stores.run_sync import CHECKPOINTS
from distcore_search.objective import Objective
from distcore_search.records import (
    ENDED,
    ROUNDS,
    SearchWork,
    begin_record,
    read_record,
    write_record,
)
from distcore_search.rounds import Follower, rounds_of, seconds_of

log = logging.getLogger("distcore")


@dataclass(frozen=True, kw_only=True)
class TrialWork(SearchWork):
    """What every trial of a search shares. Pickles.

    config: without the `hyperopt` section, no default filled in.
    cache: if no parameter touches the preprocessing, and so all share it; None: each trial finds or
        builds its own.
    data: `hollow` if there is that cache: every trial pickles it.
    """

    config: Values
    data: Data
    cache: Cache | None = None
    backend: str | None = None
    skip: frozenset[str] = frozenset()


def run_trial(work: TrialWork, name: str, raw: Mapping[str, Any]) -> None:
    """Run a trial to its end, whatever that is: afterwards its record says so. Only what must stop
    the process (a ctrl-C, a SystemExit), and what the system refuses the record itself, passes
    through, and leaves a trial that can be gone on with."""
    folder = work.folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):  # a process that a killed driver left behind must end first
        record = read_record(folder)
        if record.get("state") in ENDED:
            return
        record = begin_record(work, name, raw)
        parameters = record["parameters"]
        before = max(record.get("seconds", 0.0), seconds_of(Follower(folder / ROUNDS).new()))
        started = time.monotonic()
        try:
            step_to_go_on_from(folder)
            found = fit_trial(work, name, parameters)
            record |= {"state": "finished", **found}
        except Exception as error:  # noqa: BLE001 - any failure is this trial's alone
            log.error("Trial %s failed:\n%s", name, traceback.format_exc())
            record |= {"state": "failed", "score": None, "error": one_line(error)}
            if is_of_the_system(error):
                record["by_the_system"] = True
        record["seconds"] = round(before + time.monotonic() - started, 3)
        said = read_record(folder)
        if said.get("state") == "stopped":  # the executor's word, given meanwhile, stands
            write_record(
                folder, {**said, **({"model": record["model"]} if "model" in record else {})}
            )
        else:
            write_record(folder, record)
        if record["state"] == "finished":
            remove_directory(folder / CHECKPOINTS)


def fit_trial(
    work: TrialWork,
    name: str,
    parameters: Mapping[str, Any],
    steps: int | None = None,
    until: int | None = None,
) -> JSON:
    """Train, and write what an experiment's folder holds; {"score", "rounds", "round",
    "statistics", "evaluation"}.

    steps: end after so many, which are behind it already: a trial that was stopped then only
        writes its model. until: end with the evaluation after this step."""
    from distcore.workflow.run import trained

    folder = work.folder(name)
    config = trial_values(work, parameters)
    if steps is not None:
        config["trainer"]["train_steps"] = steps
    telling: JSON = {"type": "rounds", "path": str(folder / ROUNDS)}
    if until is not None:
        telling["until"] = until
    config["extensions"] = [*(config.get("extensions") or []), telling]
    with open_session("train", config, backend=work.backend) as session:
        session.directory = folder
        cache = work.cache or _prepared(session, work.data)
        with trained(session, work.data, cache, work.skip) as result:
            is_last = is_of_the_model(last_round(session, result))
            found = _outcome(session, cache, result, work.objective, work.skip, is_last)
            if SKIP_MODEL in work.skip:
                results.remove_model(session, result.model)
            else:
                found["model"] = digest_file(result.model / MODEL_JSON).sha256
        return found


def step_to_go_on_from(folder: Path) -> int:
    """The step of a trial's newest checkpoint that is whole. Without one it is 0, and those that
    are damaged are removed: the trial begins anew, to the same bits."""
    from distcore_torch.training.checkpoint import list_checkpoints, load_newest

    refuse_link(folder / ROUNDS)
    refuse_anothers_checkpoints(folder)
    kept = folder / CHECKPOINTS
    if not list_checkpoints(kept):
        return 0
    try:
        return load_newest(kept).step
    except CheckpointError as error:
        if error.__cause__ is not None:  # one that may not be read, and is not damaged
            raise
    log.warning("Trial %s begins anew, for none of its checkpoints is whole.", folder.name)
    remove_directory(kept)
    return 0


def trial_values(work: TrialWork, parameters: Mapping[str, Any]) -> Values:
    """The trial's config. Weights are kept by the metric that the search is after, unless the
    config says otherwise."""
    config = substitute(work.config, parameters)
    trainer = dict(config.get("trainer") or {})
    chosen = (trainer.get("validation_field"), trainer.get("validation_metric"))
    if work.objective.agrees(*chosen) and (work.given is not None or chosen == (None, None)):
        trainer["validation_field"] = work.objective.feature
        of_training = work.objective.split == "training" and work.objective.metric != "loss"
        if work.given is None or not of_training:  # which picks no round without validation rows
            trainer["validation_metric"] = work.objective.metric
    config["trainer"] = {**(work.given or {}), **trainer}
    return config


def _prepared(session: Session, data: Data) -> Cache:
    from distcore.workflow.prepare import check_predictions, prepare

    cache = prepare(session, data)
    check_predictions(session, cache)
    return cache


def _outcome(
    session: Session,
    cache: Cache,
    trained: TrainResult,
    objective: Objective,
    skip: Collection[str],
    is_last: bool = False,
) -> JSON:
    """is_last: whether the last evaluation is of the model, and so the one among equals."""
    score, place = objective.of_statistics(trained.statistics, is_last)
    found: JSON = {
        "rounds": _rounds(trained.statistics),
        "round": None if place is None else place + 1,
    }
    evaluation = {
        feature: {
            metric: values[place] for metric, values in metrics.items() if len(values) > place
        }
        for feature, metrics in trained.statistics.get(objective.evaluated, {}).items()
        if place is not None
    }
    scored: dict[str, JSON] = (
        {objective.evaluated: evaluation} if objective.evaluated != "test" else {}
    )
    if "test" in (objective.split, objective.evaluated):
        scored["test"] = _evaluated(session, cache, trained, skip)
    if objective.split == "test":
        score = objective.best_of(
            [scored["test"].get(objective.feature, {}).get(objective.metric)]
        )[0]
    if score is None:
        raise TrainingError(
            f"The trial has no finite {objective}: {_known(trained.statistics, scored, objective)}"
            ". Name another hyperopt.metric or split, or lower the learning rates that are "
            "searched."
        )
    return {**found, "score": score, "evaluation": scored.get(objective.evaluated, {})}


def _evaluated(session: Session, cache: Cache, trained: TrainResult, skip: Collection[str]) -> JSON:
    """Metrics of the kept weights on the test split."""
    from distcore_data.artifact import open_artifact
    from distcore_data.cache import open_cache
    from distcore_torch.prediction import split_batches
    from distcore_torch.training.scores import Scores

    artifact = open_artifact(trained.model, plugins=session.plugins, trust=True)
    scores = Scores(artifact.features, split="test")
    with open_cache(cache, session.plugins) as reader:
        size = session.config.trainer.eval_batch_size
        for batch, outputs in split_batches(artifact, reader, "test", size):
            scores.update(outputs, batch)
    statistics = scores.compute()
    results.write(session, TEST_STATISTICS, statistics, skip, SKIP_EVAL_STATS)
    return statistics


def _rounds(statistics: JSON) -> int:
    counts = [
        len(values)
        for outputs in statistics.values()
        if isinstance(outputs, Mapping)
        for metrics in outputs.values()
        for values in metrics.values()
    ]
    return max(counts, default=0)


def _known(statistics: JSON, scored: Mapping[str, JSON], objective: Objective) -> str:
    """What there is instead, for the error."""
    where = (
        scored.get("test", {}) if objective.split == "test" else statistics.get(objective.split, {})
    )
    if not where:
        return f"there are no rows in the {objective.split} split"
    metrics = where.get(objective.feature)
    if metrics is None:
        return f"{printable(objective.feature)} was not evaluated"
    return (
        f"{printable(objective.feature)} has {', '.join(sorted(metrics))}"
        if objective.metric not in metrics
        else "it is NaN"
    )


def check_model(folder: Path, record: JSON) -> None:
    """Raise ArtifactError unless a folder holds, whole, the model that a trial had its score
    with."""
    read_manifest(folder)
    if digest_file(folder / MODEL_JSON).sha256 != record["model"]:
        raise ArtifactError(
            f"{folder} is not the model that trial {record['name']} had its score with."
        )


def finish_stopped(work: TrialWork, record: JSON) -> None:
    """Write the model of a trial that was stopped, and into its record what that reaches: from its
    newest checkpoint, or, if its last round came after that, once it has trained up to there
    again."""
    name, folder = record["name"], work.folder(record["name"])
    steps = step_to_go_on_from(folder)
    last = max((each.step for each in rounds_of(folder / ROUNDS)), default=0)
    # Trees begin anew, and their rounds are not the trainer's steps.
    ending: Mapping[str, int] = {"steps": steps, "until": steps}
    if last > steps:
        log.info("Trial %s is trained from step %d to %d again for its model.", name, steps, last)
        ending = {"until": last}
    record |= fit_trial(work, name, record["parameters"], **ending)
    write_record(folder, record)
