"""What a run would do, where, through which plugins and why, as JSON; nothing on disk changes,
nothing is started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from distcore.config.run_config import located
from distcore.cost.estimate import estimated
from distcore.cost.sample import Sample
from distcore.cost.scale import Scale
from distcore.workflow.description import used
from distcore.workflow.limited_gpus import check_gpus, limited_gpus
from distcore.workflow.planned_data import look
from distcore.workflow.session import Session, resolved_session
from distcore.workflow.split_scores import MOST_ROWS
from distcore_core.contracts import JSON, TRAINER
from distcore_core.errors import ConfigError
from distcore_data.dataset import Data
from distcore_data.figures import human_bytes

PROBABILITY = 4
"""Bytes of one in the files of predictions."""

LARGE_PREDICTIONS = 100 << 20
"""Bytes of an experiment's predictions that are told."""


def plan(
    config: Any,
    data: Data,
    *,
    backend: str | None = None,
    random_seed: int | None = None,
    gpus: Any = None,
    scale: Scale | None = None,
) -> JSON:
    """What `train` would do with this data.

    {"config", "random_seed", "backend", "plugins", "dataset", "cache", "training", "cost",
    "notes"}; numbers that are estimates stand beside `"exact": false`. Reads the data once, for its
    digest. Raises what the run itself would raise at once.
    """
    with limited_gpus(gpus):
        session = resolved_session("plan", config, backend=backend, random_seed=random_seed)
        try:
            check_gpus(gpus, session.backend)
            session.check_model()
            return _described(session, data, scale)
        except ConfigError as error:
            raise located(error, session.config) from error
        finally:
            session.backend.close()


def _described(session: Session, data: Data, scale: Scale | None) -> JSON:
    from distcore.workflow.run import train_job  # with whatever else a run takes

    resources = session.backend.resources()
    dataset, cache, where, seen = look(session, data)
    expected = dataset["splits"]["train"]
    trainer = session.make(TRAINER)
    job = train_job(session, where, expected_rows=expected)
    training = trainer.plan(job, session.backend)
    # For the report.
    training["scored_rows"] = None if expected is None else min(expected, MOST_ROWS)
    validates = dataset["splits"]["validation"] != 0  # None: only the values say how many
    doubts = seen.doubts(trainer, job, validates)
    notes = [*session.config.notes, *_defaults_told(session), *training.get("notes", ()), *doubts]
    free = cache["free_bytes"]
    if cache["state"] != "hit" and free is not None and cache["bytes"] > free:
        notes.append(
            f"The cache needs more than is free in {cache['directory']}; name another with "
            "backend.cache_dir."
        )
    notes += _predictions_told(seen.sample, dataset["splits"]["test"] or 0)
    return {
        "config": session.config.source,
        "random_seed": session.config.random_seed,
        "backend": {
            "name": session.backend_name,
            "reason": session.reason,
            "resources": asdict(resources),
            "detected": [asdict(each) for each in session.plugins.detect()],
        },
        "plugins": [
            {
                "role": offer.kind,
                "name": offer.name,
                "distribution": offer.distribution,
                "version": offer.version,
                "why": why,
            }
            for offer, why in used(session, data)
        ],
        "dataset": dataset,
        "cache": cache,
        "training": training,
        "cost": estimated(job, seen.sample, dataset, cache, training, session.plugins, scale),
        "notes": notes,
    }


def _predictions_told(sample: Sample, rows: int) -> Iterator[str]:
    """That an experiment's predictions take much room.

    rows: of the test split."""
    features = sample.features
    found = [features.metadata[each.name] for each in features.outputs] if features else []
    classes = sum(each.get("vocab_size", 0) for each in found)
    size = PROBABILITY * classes * rows
    if size >= LARGE_PREDICTIONS:
        yield (
            f"Predictions have a probability for each of about {classes:,} classes: "
            f"{human_bytes(PROBABILITY * classes)} a row, {human_bytes(size)} of the test split. "
            "--skip_save_predictions leaves them out."
        )


def _defaults_told(session: Session) -> Iterator[str]:
    """The sections of the model that the config leaves out and whose default is more than their
    options' defaults."""
    chosen = session.config.model
    model: Any = session.plugins.options_model("models", chosen.type, "", chosen.options)
    for name, field in (model.model_fields if model is not None else {}).items():
        said = (
            field.default.model_dump(exclude_unset=True)
            if hasattr(field.default, "model_dump")
            else {}
        )
        if said and name not in chosen.options:
            in_order = sorted(said.items(), key=lambda each: each[0] != "type")
            words = ", ".join(f"{option}: {value}" for option, value in in_order)
            yield f"The config has no {name}, so it is {{{words}}}."
