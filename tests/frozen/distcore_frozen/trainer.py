"""Predict for every row what the training split has on average: the mean, or the share of each class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from distcore_core.plugin import (
    JSON,
    ArtifactError,
    Backend,
    Batch,
    Feature,
    FeatureSet,
    OpenJob,
    Progress,
    TrainerBase,
    TrainJob,
    TrainResult,
    UserError,
)

FILE = "means.json"


class MeanTrainer(TrainerBase):
    """A `Trainer`. Every output feature of one value a row, or of classes."""

    def __init__(self, options: Any) -> None:
        self.options = options

    def plan(self, job: TrainJob, backend: Backend) -> JSON:
        return {"workers": 1, "cpus": backend.resources().cpus, "notes": ["Every row gets the same prediction."]}

    def fit(self, job: TrainJob, backend: Backend, progress: Progress) -> TrainResult:
        with job.open() as opened:
            if not opened.rows("train"):
                raise UserError("The training split has no rows. Change preprocessing.split, or give more data.")
            progress.begin("train", total=opened.rows("train"))
            means = {each.name: self._mean(each, opened, progress) for each in opened.features.outputs}
            progress.end()
            predictor = MeanPredictor(means)
            scores = {
                "training": opened.scores(predictor, "train"),
                "validation": opened.scores(predictor, "validation"),
            }
            opened.tell_epoch(epoch=1, step=1, metrics=scores)
            model = opened.write_model({FILE: json.dumps(means).encode()})
        curves = {
            split: {output: {name: [value] for name, value in found.items()} for output, found in outputs.items()}
            for split, outputs in scores.items()
        }
        return TrainResult(model=model, statistics=curves, best={"epoch": 1, "step": 1}, steps=1, epochs=1.0)

    def load(self, directory: Path, features: FeatureSet, *, trust: bool = False) -> MeanPredictor:
        try:
            means = json.loads((directory / FILE).read_text(encoding="utf-8"))
            return MeanPredictor({each.name: means[each.name] for each in features.outputs})
        except (OSError, ValueError, KeyError) as error:
            raise ArtifactError(f"{directory / FILE} cannot be read ({error}). Train again.") from error

    def _mean(self, feature: Feature, job: OpenJob, progress: Progress) -> Any:
        shape = feature.output_shape(job.features.metadata[feature.name])
        total, rows = np.zeros(shape), 0
        for batch in job.batches("train", [feature.name]):
            values = np.asarray(batch[feature.name])
            kept = values[values >= 0] if shape else values
            total = total + (np.bincount(kept, minlength=shape[0]) if shape else values.sum(dtype=np.float64))
            rows += len(kept)
            progress.done = min(progress.done + batch.rows, job.rows("train"))
        prior = np.full(shape, 1.0 / shape[0]) if shape else np.zeros(())
        return ((total + self.options.shrink * prior) / max(rows + self.options.shrink, 1)).tolist()


class MeanPredictor:
    """A `Predictor`."""

    def __init__(self, means: dict[str, Any]) -> None:
        self.means = means

    def predict(self, batch: Batch) -> dict[str, np.ndarray]:
        return {
            name: np.broadcast_to(np.asarray(mean, np.float32), (batch.rows, *np.shape(mean))).copy()
            for name, mean in self.means.items()
        }
