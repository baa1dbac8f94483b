"""What LightGBM is to fit for each type of output feature: objective, classes, weights, rows
without a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distcore_core.plugin import JSON, FeatureSet, UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

OF_LOSS = {
    "mean_absolute_error": "regression_l1",
    "mean_absolute_percentage_error": "mape",
    "huber": "huber",
}
"""LightGBM's objective for a number's `loss.type`; any other is squared error, whose root is
least where it is."""

KINDS = ("binary", "category", "number")
NETWORKS_ONLY = ("focal", "poly")
"""Losses that LightGBM has no objective for."""


@dataclass(frozen=True)
class Output:
    """One output feature. kind: its type; loss: its loss options; metadata: what was found in
    its column."""

    name: str
    kind: str
    loss: Any
    metadata: JSON

    def parameters(self) -> JSON:
        """Objective, and classes if there are several."""
        if self.kind == "binary":
            return {"objective": "binary"}
        if self.kind == "category":
            return {"objective": "multiclass", "num_class": self.metadata["vocab_size"]}
        objective = OF_LOSS.get(self.loss.type, "regression")
        return {
            "objective": objective,
            **({"alpha": self.loss.delta} if objective == "huber" else {}),
        }

    def known(self, target: NDArray[Any]) -> NDArray[np.bool_]:
        """Which rows have a target: a category that is no class has code -1."""
        return target >= 0 if self.kind == "category" else np.ones(len(target), np.bool_)

    def weights(self, target: NDArray[Any]) -> NDArray[np.float32] | None:
        """The weight of each row, from the config's class weights; None: all count alike."""
        if self.kind == "binary" and self.loss.positive_class_weight is not None:
            return np.where(target > 0, self.loss.positive_class_weight, 1.0).astype(np.float32)
        if self.kind == "category" and self.metadata["class_weights"]:
            return np.asarray(self.metadata["class_weights"], np.float32)[target]
        return None


def outputs_of(features: FeatureSet) -> list[Output]:
    """Every output feature. Raises UserError for a type that trees do not predict."""
    kinds = {each.name: features.types[each.name] for each in features.outputs}
    unknown = [f"{name} ({kind})" for name, kind in kinds.items() if kind not in KINDS]
    if unknown:
        raise UserError(
            f"The trainer lightgbm cannot predict {', '.join(unknown)}. It predicts features of "
            f"the types {', '.join(KINDS)}; use the trainer local or data_parallel for others."
        )
    for each in features.outputs:
        if each.options.loss.type in NETWORKS_ONLY:
            raise UserError(
                f"The trainer lightgbm has no loss {each.options.loss.type!r}, which {each.name!r} "
                "asks for. Leave the loss out, or use the trainer local or data_parallel."
            )
    return [
        Output(each.name, kinds[each.name], each.options.loss, features.metadata[each.name])
        for each in features.outputs
    ]
