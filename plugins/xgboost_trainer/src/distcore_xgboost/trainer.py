"""XGBoost under `distcore_trees.TreeTrainer`: its parameters, a forest that grows, one that was
saved."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import xgboost

from distcore_core.plugin import JSON, Backend, UserError
from distcore_trees import Forest, Output, Rows, Saved, TreeTrainer
from distcore_xgboost.options import XGBoostOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from distcore_trees import Part

OF_LOSS = {
    "binary_weighted_cross_entropy": "binary:logistic",
    "softmax_cross_entropy": "multi:softprob",
    "mean_squared_error": "reg:squarederror",
    "root_mean_squared_error": "reg:squarederror",  # least where its square is
    "mean_absolute_error": "reg:absoluteerror",
    "huber": "reg:pseudohubererror",
}
"""XGBoost's objective for a `loss.type`."""


class XGBoostTrainer(TreeTrainer[XGBoostOptions]):
    """`backend: {trainer: {type: xgboost}}`."""

    name, ending = "xgboost", "ubj"
    losses = OF_LOSS

    def uses_gpu(self, backend: Backend) -> bool:
        """If the options say so."""
        return self.options.device != "cpu"

    def begin(
        self,
        output: Output,
        train: Rows,
        validation: Rows | None,
        seed: int,
        before: bytes | None,
    ) -> Forest:
        if self.options.device == "cuda" and not xgboost.build_info()["USE_CUDA"]:
            raise UserError(
                "backend.trainer.device is cuda, and the XGBoost that is installed was built "
                "without CUDA: pip uninstall xgboost-cpu, then pip install xgboost. Or leave the "
                "option out."
            )
        shared = {"num_boost_round", "early_stopping_rounds", "trees_per_evaluation", "num_threads"}
        parameters = {
            **self.options.model_dump(exclude=shared),
            **parameters_of(output, train),
            "nthread": self.options.num_threads,
            "seed": seed,
            "tree_method": "hist",
            "disable_default_eval_metric": True,
            "verbosity": 0,
        }
        if output.loss.type == "huber" and cannot_split(parameters, train.target):
            output.tell_of_small_delta(self.name)
        return XGBoostForest(parameters, train, validation, before)

    def open(self, content: bytes) -> Saved:
        return SavedForest(xgboost.Booster(model_file=bytearray(content)))


def parameters_of(output: Output, train: Rows) -> JSON:
    """Objective, with its options. Where huber begins is not left to XGBoost: it takes a Newton
    step from 0, where the loss has next to no second derivative if the target is far away."""
    found: JSON = {"objective": OF_LOSS[output.loss.type]}
    if output.kind == "category":
        found["num_class"] = output.classes
    if output.loss.type == "huber":
        found["huber_slope"] = output.loss.delta
        found["base_score"] = float(np.median(train.target))
    return found


def cannot_split(huber: JSON, target: NDArray[np.float32]) -> bool:
    """Whether the second derivatives of all rows are too little for two leaves. huber: parameters
    with that objective."""
    away = (target - huber["base_score"]) / huber["huber_slope"]
    return bool(np.sum((1 + away**2) ** -1.5) < 2 * huber["min_child_weight"])


class XGBoostForest:
    """A `distcore_trees.Forest`."""

    def __init__(
        self, parameters: JSON, train: Rows, validation: Rows | None, before: bytes | None
    ) -> None:
        self._parameters = parameters
        self._data = {"train": matrix(train)}
        if validation is not None:
            self._data["validation"] = matrix(validation)
        self._rounds = 0
        self._booster = self._begun(before)

    def _begun(self, before: bytes | None) -> xgboost.Booster:
        """A booster that knows the rows, so that it adds each tree's values to what it has."""
        content = None if before is None else bytearray(before)
        booster = xgboost.Booster(cache=list(self._data.values()), model_file=content)
        if before is not None:  # the base of the trees that it has
            self._rounds = booster.num_boosted_rounds()
            self._parameters.pop("base_score", None)
        booster.set_param({**self._parameters, "seed": self._parameters["seed"] + self._rounds})
        return booster

    def grow(self) -> bool:
        try:
            self._booster.update(self._data["train"], self._rounds)
        except xgboost.core.XGBoostError as error:
            raise UserError(
                f"XGBoost refuses to train ({error}). Change the options of backend.trainer."
            ) from error
        self._rounds += 1
        if self._parameters["device"] == "cuda":
            self._refuse_cpu()
        return True

    def _refuse_cpu(self) -> None:
        """Without a GPU XGBoost goes on with the CPU, and only warns."""
        settings = json.loads(self._booster.save_config())
        if settings["learner"]["generic_param"]["device"] == "cpu":
            raise UserError(
                "backend.trainer.device is cuda, and XGBoost finds no GPU here. Leave the option "
                "out, or train on a machine with one."
            )

    def outputs(self, part: Part) -> NDArray[np.float32]:
        return self._booster.predict(self._data[part])

    def content(self) -> bytes:
        """XGBoost's random numbers are no part of its file: if there are any, it begins with
        fresh ones here as a run does that goes on from it."""
        found = self.first(self._rounds)
        if min(self._parameters["subsample"], self._parameters["colsample_bytree"]) < 1:
            self._booster = self._begun(found)
        return found

    def first(self, rounds: int) -> bytes:
        """XGBoost's binary JSON."""
        return bytes(self._booster[:rounds].save_raw("ubj"))


class SavedForest:
    """A `distcore_trees.Saved`."""

    def __init__(self, booster: xgboost.Booster) -> None:
        self.booster = booster

    def outputs(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        data = xgboost.DMatrix(
            inputs, feature_types=self.booster.feature_types, enable_categorical=True
        )
        return np.asarray(self.booster.predict(data), np.float32)


def matrix(rows: Rows) -> xgboost.DMatrix:
    """What XGBoost bins."""
    return xgboost.DMatrix(
        rows.inputs,
        rows.target,
        weight=rows.weight,
        feature_types=kinds(rows.inputs.shape[1], rows.categories),
        enable_categorical=True,
    )


def kinds(columns: int, categories: Sequence[int]) -> list[str]:
    """XGBoost's word for each column: c for codes, q for numbers."""
    codes = set(categories)
    return ["c" if number in codes else "q" for number in range(columns)]
