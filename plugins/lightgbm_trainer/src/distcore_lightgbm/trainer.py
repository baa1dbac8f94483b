"""LightGBM under `distcore_trees.TreeTrainer`: its parameters, a forest that grows, one that was
saved."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import lightgbm
import numpy as np

from distcore_core.plugin import JSON, Backend, UserError
from distcore_lightgbm.options import LightGBMOptions
from distcore_trees import Forest, Output, Rows, Saved, TreeTrainer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distcore_trees import Part

OF_LOSS = {
    "binary_weighted_cross_entropy": "binary",
    "softmax_cross_entropy": "multiclass",
    "mean_squared_error": "regression",
    "root_mean_squared_error": "regression",  # least where its square is
    "mean_absolute_error": "regression_l1",
    "huber": "huber",
}
"""LightGBM's objective for a `loss.type`. Its `mape` is none: it counts every target below 1 as 1,
and would take percentages of normalized values."""

TREES = "\nafter each round, so many: "
"""In a checkpoint, between the trees and how many there were after each round."""


class LightGBMTrainer(TreeTrainer[LightGBMOptions]):
    """`backend: {trainer: {type: lightgbm}}`."""

    name, ending = "lightgbm", "txt"
    losses = OF_LOSS

    def uses_gpu(self, backend: Backend) -> bool:
        """If the options say so."""
        return self.options.device_type != "cpu"

    def begin(
        self,
        output: Output,
        train: Rows,
        validation: Rows | None,
        seed: int,
        before: bytes | None,
    ) -> Forest:
        shared = {"num_boost_round", "early_stopping_rounds", "trees_per_evaluation"}
        parameters = {
            **self.options.model_dump(exclude=shared),
            **parameters_of(output),
            "metric": "None",
            "seed": seed,
            "deterministic": True,
            "force_row_wise": self.options.device_type == "cpu",
            "verbosity": -1,
        }
        if output.loss.type == "huber" and self._stays_behind(output.loss.delta, train.target):
            output.tell_of_small_delta(self.name)
        return LightGBMForest(parameters, train, validation, before)

    def _stays_behind(self, delta: float, target: NDArray[np.float32]) -> bool:
        """Whether a quarter of the rows are further from the mean than all trees can lead: a leaf
        of huber has a mean of gradients, which are delta at most."""
        reach = delta * self.options.learning_rate * self.options.num_boost_round
        return bool(np.quantile(np.abs(target - target.mean()), 0.75) > reach)

    def open(self, content: bytes) -> Saved:
        try:
            return SavedForest(lightgbm.Booster(model_str=content.decode()))
        except lightgbm.basic.LightGBMError as error:
            raise ValueError(str(error)) from error


def parameters_of(output: Output) -> JSON:
    """Objective, with its options."""
    found: JSON = {"objective": OF_LOSS[output.loss.type]}
    if output.kind == "category":
        found["num_class"] = output.classes
    if output.loss.type == "huber":
        found["alpha"] = output.loss.delta
    return found


class LightGBMForest:
    """A `distcore_trees.Forest`."""

    def __init__(
        self, parameters: JSON, train: Rows, validation: Rows | None, before: bytes | None
    ) -> None:
        self._parameters = parameters
        self._rows = {"train": train, "validation": validation}
        self._data = dataset(train)
        self._held_out = [dataset(validation, self._data)] if validation is not None else []
        text, _, trees = (before or b"").decode().partition(TREES)
        self._before = lightgbm.Booster(model_str=text) if text else None
        self._booster: lightgbm.Booster | None = None
        self._trees: list[int] = json.loads(trees) if trees else []
        if self._before is not None and not trees:  # an older version: each round grew one
            self._trees = list(range(1, self._before.current_iteration() + 1))

    def grow(self) -> bool:
        """See `distcore_trees.Forest`. Each tree draws its columns by a seed of its own, so that a
        run that goes on draws the same. One that draws none keeps the first: its file names it.

        Where columns are drawn a round that grows no tree ends nothing: the next may draw one that
        can be split."""
        draws = self._parameters["feature_fraction"] < 1
        place = len(self._trees) if draws else 0
        seed = {"feature_fraction_seed": self._parameters["seed"] + place}
        try:
            if self._booster is None:
                self._booster = lightgbm.train(
                    self._parameters | seed,
                    self._data,
                    1,
                    valid_sets=self._held_out,
                    init_model=self._before,
                    keep_training_booster=True,
                )
            else:
                if draws:
                    self._booster.reset_parameter(seed)
                self._booster.update()
        except lightgbm.basic.LightGBMError as error:
            raise UserError(
                f"LightGBM refuses to train ({error}). Change the options of backend.trainer"
                + ("." if self._parameters["device_type"] == "cpu" else ", or train on the CPU.")
            ) from error
        trees = self._booster.current_iteration()
        if not draws and [trees] == self._trees[-1:]:
            return False
        self._trees.append(trees)
        return True

    def outputs(self, part: Part) -> NDArray[np.float32]:
        """Those that the library keeps while it trains; of trees that were over when their run was
        gone on with it keeps none."""
        if self._booster is None:
            rows = self._rows[part]
            assert self._before is not None
            assert rows is not None
            return SavedForest(self._before).outputs(rows.inputs)
        found: list[NDArray[Any]] = []

        def look(outputs: NDArray[Any], data: lightgbm.Dataset) -> tuple[str, float, bool]:
            found.append(outputs)
            return "outputs", 0.0, False

        (self._booster.eval_train if part == "train" else self._booster.eval_valid)(look)
        return found[0].astype(np.float32)

    def content(self) -> bytes:
        """The trees, and how many there were after each round."""
        return self.first(len(self._trees)) + f"{TREES}{json.dumps(self._trees)}".encode()

    def first(self, rounds: int) -> bytes:
        """LightGBM's text format."""
        booster = self._booster or self._before
        assert booster is not None
        # An older version may have counted a round more, which grew no tree.
        trees = self._trees[min(rounds, len(self._trees)) - 1]
        text: str = booster.model_to_string(num_iteration=trees)
        return text.encode()


class SavedForest:
    """A `distcore_trees.Saved`."""

    def __init__(self, booster: lightgbm.Booster) -> None:
        self.booster = booster

    def outputs(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(self.booster.predict(inputs), np.float32)


def dataset(rows: Rows, reference: lightgbm.Dataset | None = None) -> lightgbm.Dataset:
    """What LightGBM bins. reference: whose bins to use."""
    return lightgbm.Dataset(
        rows.inputs,
        rows.target,
        weight=rows.weight,
        categorical_feature=list(rows.categories),
        reference=reference,
    )
