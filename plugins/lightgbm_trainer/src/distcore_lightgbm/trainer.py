"""Fit one gradient-boosted model for each output feature on the encoded cache; save, open and
predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np

from distcore_core.plugin import (
    JSON,
    ArtifactError,
    Backend,
    Batch,
    FeatureSet,
    OpenJob,
    Progress,
    Split,
    TrainerBase,
    TrainJob,
    TrainResult,
    UserError,
)
from distcore_lightgbm.outputs import Output, outputs_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distcore_lightgbm.options import LightGBMOptions


class LightGBMTrainer(TrainerBase):
    """`backend: {trainer: {type: lightgbm}}`. Trees are boosted in one process, whose threads
    share the work."""

    def __init__(self, options: LightGBMOptions) -> None:
        self.options = options

    def plan(self, job: TrainJob, backend: Backend) -> JSON:
        """What `fit` would do."""
        return {
            "workers": 1,
            "threads": self.options.num_threads or backend.resources().cpus,
            "num_boost_round": self.options.num_boost_round,
            "notes": [
                "Trees are boosted on whole columns: nothing of the config's `trainer` and "
                "`combiner` applies."
            ],
        }

    def fit(self, job: TrainJob, backend: Backend, progress: Progress) -> TrainResult:
        """Boost, score the training and the validation split, and write the model folder.

        Raises UserError for an input whose column is ragged (text, set): trees split on one
        value a row."""
        if job.resume is not None or job.initial_weights is not None:
            raise UserError(
                "The trainer lightgbm starts from nothing each time: leave out the path of another "
                "model."
            )
        with job.open() as opened:
            outputs = opened.features.outputs
            refuse_ragged(opened.features)
            boosters = self._boost_all(opened, job.seed, progress)
            predictor = TreePredictor(boosters, opened.features)
            scores = {
                "training": opened.scores(predictor, "train"),
                "validation": opened.scores(predictor, "validation"),
            }
            rounds = max(booster.num_trees() for booster in boosters.values())
            opened.tell_epoch(epoch=1, step=rounds, metrics=scores)
            model = opened.write_model(
                {
                    file_of(number): text_of(boosters[each.name])
                    for number, each in enumerate(outputs)
                }
            )
        curves = {
            split: {
                output: {name: [value] for name, value in metrics.items()}
                for output, metrics in outputs.items()
            }
            for split, outputs in scores.items()
        }
        return TrainResult(
            model=model,
            statistics=curves,
            best={"epoch": 1, "step": rounds},
            steps=rounds,
            epochs=1.0,
        )

    def load(self, directory: Path, features: FeatureSet, *, trust: bool = False) -> TreePredictor:
        """Open the saved trees: LightGBM's text format, which is numbers and no code.

        Raises ArtifactError for a file that LightGBM cannot read."""
        boosters = {}
        for number, feature in enumerate(features.outputs):
            path = directory / file_of(number)
            try:
                boosters[feature.name] = lightgbm.Booster(
                    model_str=path.read_text(encoding="utf-8")
                )
            except (OSError, UnicodeDecodeError, lightgbm.basic.LightGBMError) as error:
                raise ArtifactError(
                    f"{path} cannot be read by LightGBM ({error}). Train again."
                ) from error
        return TreePredictor(boosters, features)

    def _boost_all(
        self, job: OpenJob, seed: int, progress: Progress
    ) -> dict[str, lightgbm.Booster]:
        """{output feature: its model}."""
        outputs = outputs_of(job.features)
        if not job.rows("train"):
            raise UserError(
                "The training split has no rows. Change preprocessing.split, or give more data."
            )
        train = matrix(job, "train")
        validation = matrix(job, "validation") if job.rows("validation") else None
        progress.begin("train", total=self.options.num_boost_round * len(outputs), unit="trees")
        boosters = {
            each.name: self._boost(each, job, train, validation, seed, progress) for each in outputs
        }
        progress.end()
        return boosters

    def _boost(
        self,
        output: Output,
        job: OpenJob,
        train: NDArray[np.float32],
        validation: NDArray[np.float32] | None,
        seed: int,
        progress: Progress,
    ) -> lightgbm.Booster:
        """The model of one output feature. train, validation: inputs, [rows, words]."""
        parameters = {
            **self.options.model_dump(exclude={"num_boost_round", "early_stopping_rounds"}),
            **output.parameters(),
            "seed": seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        columns = category_columns(job.features)
        data = dataset(output, train, target(job, "train", output.name), columns)
        callbacks: list[Any] = [lambda environment: setattr(progress, "done", progress.done + 1)]
        held_out = []
        if validation is not None and self.options.early_stopping_rounds:
            held_out = [
                dataset(output, validation, target(job, "validation", output.name), columns, data)
            ]
            callbacks.append(
                lightgbm.early_stopping(self.options.early_stopping_rounds, verbose=False)
            )
        rounds = self.options.num_boost_round
        return lightgbm.train(parameters, data, rounds, valid_sets=held_out, callbacks=callbacks)


class TreePredictor:
    """A `contracts.Predictor` over one booster for each output feature."""

    def __init__(self, boosters: dict[str, lightgbm.Booster], features: FeatureSet) -> None:
        self.boosters = boosters
        self.names = [feature.name for feature in features.inputs]

    def predict(self, batch: Batch) -> dict[str, NDArray[np.float32]]:
        """{output: probabilities [B] or [B, classes], or encoded values [B]}."""
        rows = beside(batch, self.names)
        return {
            name: np.asarray(booster.predict(rows), np.float32)
            for name, booster in self.boosters.items()
        }


# ------------------------------------------------------------------ from cache to LightGBM


def refuse_ragged(features: FeatureSet) -> None:
    """Raise UserError if an input has no fixed width."""
    ragged = [
        feature.name for feature in features.inputs if features.columns[feature.name].width is None
    ]
    if ragged:
        raise UserError(
            f"The trainer lightgbm cannot use {', '.join(ragged)}: trees split on one value a row, "
            "and texts and sets have many. Leave these inputs out, or use the trainer local or "
            "data_parallel."
        )


def beside(batch: Batch, names: list[str]) -> NDArray[np.float32]:
    """Columns side by side, [B, words]; codes are exact in float32 up to 2**24."""
    columns = [np.asarray(batch[name], np.float32).reshape(batch.rows, -1) for name in names]
    return np.concatenate(columns, axis=1)


def matrix(job: OpenJob, split: Split) -> NDArray[np.float32]:
    """The inputs of a split, [rows, words]."""
    names = [each.name for each in job.features.inputs]
    return np.concatenate([beside(batch, names) for batch in job.batches(split, names)])


def target(job: OpenJob, split: Split, name: str) -> NDArray[Any]:
    """The encoded target of a split, [rows]."""
    return np.concatenate([np.asarray(batch[name]) for batch in job.batches(split, [name])])


def category_columns(features: FeatureSet) -> list[int]:
    """Which columns of `matrix` are codes, whose order means nothing."""
    found: list[int] = []
    start = 0
    for each in features.inputs:
        column = features.columns[each.name]
        assert column.width is not None  # refused before
        if column.dtype == "int32" and column.width == 1:
            found.append(start)
        start += column.width
    return found


def dataset(
    output: Output,
    rows: NDArray[np.float32],
    target: NDArray[Any],
    columns: list[int],
    reference: Any = None,
) -> lightgbm.Dataset:
    """What LightGBM bins: the rows that have a target, with their weights. reference: whose bins
    to use."""
    kept = output.known(target)
    if not kept.all():
        rows, target = rows[kept], target[kept]
    weight = output.weights(target)
    return lightgbm.Dataset(
        rows, target, weight=weight, categorical_feature=columns, reference=reference
    )


# ------------------------------------------------------------------ the model's files


def file_of(number: int) -> str:
    """The file of the output feature of this number."""
    return f"trees-{number}.txt"


def text_of(booster: lightgbm.Booster) -> bytes:
    """The trees up to the best round, in LightGBM's text format."""
    return booster.model_to_string().encode()
