"""Ridge regression on the encoded columns: codes as one column a class, one solution for all
outputs."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from distcore_core.plugin import (
    JSON,
    ArtifactError,
    Backend,
    Batch,
    FeatureSet,
    OpenJob,
    Progress,
    Round,
    Split,
    TrainerBase,
    TrainJob,
    TrainResult,
    UserError,
)

FILE, KINDS = "coefficients.npy", ("number", "binary", "category")


class RidgeTrainer(TrainerBase):
    """Sums of products in one pass over the rows, then one system of equations.

    penalty: of the squared coefficients."""

    def __init__(self, penalty: float) -> None:
        self.penalty = penalty

    def plan(self, job: TrainJob, backend: Backend) -> JSON:
        """What `fit` would do."""
        return {"workers": 1, "notes": ["Solved in closed form: `trainer` does not apply."]}

    def fit(self, job: TrainJob, backend: Backend, progress: Progress) -> TrainResult:
        """Raises UserError for what it cannot do."""
        if job.resume is not None or job.initial_weights is not None:
            raise UserError("The trainer ridge starts from nothing: give no path of another model.")
        with job.open() as opened:
            _refuse(opened)
            rows = opened.rows("train")
            progress.begin("train", total=1, unit="steps", rows_per_unit=rows)
            predictor = RidgePredictor(opened.features, self._solved(opened))
            splits: dict[str, Split] = {"training": "train", "validation": "validation"}
            scores = {name: opened.scores(predictor, each) for name, each in splits.items()}
            progress.done = 1
            progress.tell(told := _round(opened, scores, progress))
            opened.tell_epoch(epoch=1, step=1, metrics=scores)
            progress.end()
            model = opened.write_model({FILE: lambda file: np.save(file, predictor.coefficients)})
        curves: JSON = {split: {} for split in scores}
        for split, outputs in scores.items():
            for name, found in outputs.items():
                curves[split][name] = {metric: [value] for metric, value in found.items()}
        best = {name: getattr(told, name) for name in ("feature", "metric", "value")}
        best |= {"epoch": 1, "step": 1}
        return TrainResult(model=model, statistics=curves, best=best, steps=1, epochs=1.0)

    def load(self, directory: Path, features: FeatureSet, *, trust: bool = False) -> RidgePredictor:
        """What `fit` wrote. Raises ArtifactError."""
        try:
            return RidgePredictor(features, np.load(directory / FILE, allow_pickle=False))
        except (OSError, ValueError) as error:
            raise ArtifactError(f"{directory / FILE} ({error}): train again.") from error

    def _solved(self, job: OpenJob) -> np.ndarray:
        """Coefficients, [inputs + 1, outputs]."""
        left, right = np.zeros(()), np.zeros(())
        for batch in job.batches("train"):
            rows, wanted = (_side(job.features, each, batch) for each in ("inputs", "outputs"))
            left, right = left + rows.T @ rows, right + rows.T @ wanted[:, 1:]
        penalty = self.penalty * np.eye(len(left))
        penalty[0, 0] = 0.0
        return np.linalg.lstsq(left + penalty, right, rcond=None)[0]


class RidgePredictor:
    """coefficients: [inputs + 1, outputs]."""

    def __init__(self, features: FeatureSet, coefficients: np.ndarray) -> None:
        self.features, self.coefficients = features, coefficients

    def predict(self, batch: Batch) -> dict[str, np.ndarray]:
        """{output: probabilities [B] or [B, classes], or encoded values [B]}."""
        wanted, found, start = _side(self.features, "inputs", batch) @ self.coefficients, {}, 0
        for each in self.features.outputs:
            kind, width = self.features.types[each.name], _classes(self.features, each.name) or 1
            part, start = wanted[:, start : start + width], start + width
            if kind != "number":
                part = part.clip(1e-6, 1 - 1e-6)
                part = part / part.sum(1, keepdims=True) if kind == "category" else part
            found[each.name] = (part if kind == "category" else part[:, 0]).astype(np.float32)
        return found


def _classes(features: FeatureSet, name: str) -> int:
    return features.metadata[name].get("vocab_size", 0) if features.types[name] == "category" else 0


def _side(features: FeatureSet, side: str, batch: Batch) -> np.ndarray:
    """A column of ones, then those of the inputs or of the outputs: float64 [B, columns]."""
    columns = [np.ones((batch.rows, 1))]
    for each in getattr(features, side):
        values, classes = np.asarray(batch[each.name]), _classes(features, each.name)
        one_hot = values[:, None] == np.arange(classes) if classes else values
        columns.append(one_hot.reshape(batch.rows, -1).astype(np.float64))
    return np.concatenate(columns, axis=1)


def _round(job: OpenJob, scores: JSON, progress: Progress) -> Round:
    """The only one, so the best one. By the first output's first metric."""
    split, feature = "validation" if scores["validation"] else "training", job.features.outputs[0]
    metric, value = next(iter(scores[split][feature.name].items()))
    return Round(
        evaluation=1,
        epoch=1.0,
        epochs=1.0,
        step=1,
        metrics=scores,
        split=split,
        feature=feature.name,
        metric=metric,
        value=value,
        best=value,
        best_evaluation=1,
        patience_left=None,
        seconds=time.monotonic() - progress.started,
    )


def _refuse(job: OpenJob) -> None:
    if not job.rows("train"):
        raise UserError("The training split has no rows. Change preprocessing.split.")
    for each in (*job.features.inputs, *job.features.outputs):
        weighted = job.features.metadata[each.name].get("class_weights")
        if job.features.types[each.name] not in KINDS or weighted:
            what = f"{', '.join(KINDS)}, without class weights"
            raise UserError(f"The trainer ridge takes {what}. Leave {each.name!r} out.")
