"""What is to be fitted for each output feature: its type, its loss, weights of its rows."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distcore_core.contracts import JSON, FeatureSet
from distcore_core.errors import UserError
from distcore_data.printable import printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = ("binary", "category", "number")
NOT_OF_TREES = ("robust_lambda", "confidence_penalty")
"""Options of losses that no library of trees has: only 0."""
INSTEAD = "use the trainer local or data_parallel"
log = logging.getLogger("distcore")


@dataclass(frozen=True)
class Output:
    """One output feature. kind: its type; loss: its loss options; metadata: what was found in
    its column."""

    name: str
    kind: str
    loss: Any
    metadata: JSON

    @property
    def classes(self) -> int:
        """Of a category; 0 for any other type."""
        return int(self.metadata["vocab_size"]) if self.kind == "category" else 0

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

    def tell_of_small_delta(self, trainer: str) -> None:
        """Warn that trees learn little of the target by huber. trainer: its name."""
        log.warning(
            "The trainer %s learns little of %s by the loss huber: loss.delta (%g) is small beside "
            "the spread of the target. Give a delta near its standard deviation, or "
            "preprocessing: {normalization: zscore} of the feature, or leave the loss out.",
            trainer,
            printable(self.name),
            self.loss.delta,
        )


def outputs_of(features: FeatureSet, trainer: str, losses: Collection[str]) -> list[Output]:
    """Every output feature.

    Args:
        features: Fitted.
        trainer: Its name, for messages.
        losses: Types of those that its library has an objective for.

    Raises:
        UserError: Trees do not predict the type, or have no such loss or option of it.
    """
    types = features.types
    kinds = {each.name: types[each.name] for each in features.outputs}
    unknown = [f"{printable(name)} ({kind})" for name, kind in kinds.items() if kind not in KINDS]
    if unknown:
        raise UserError(
            f"The trainer {trainer} cannot predict {', '.join(unknown)}. It predicts features of "
            f"the types {', '.join(KINDS)}; {INSTEAD} for others."
        )
    for each in features.outputs:
        for option in NOT_OF_TREES:
            if getattr(each.options.loss, option, 0):
                raise UserError(
                    f"The trainer {trainer} has no {option}, which the loss of {each.name!r} asks "
                    f"for. Leave it out, or {INSTEAD}."
                )
        if each.options.loss.type not in losses:
            raise UserError(
                f"The trainer {trainer} has no loss {each.options.loss.type!r}, which "
                f"{each.name!r} asks for. Leave the loss out, or {INSTEAD}."
            )
    return [
        Output(each.name, kinds[each.name], each.options.loss, features.metadata[each.name])
        for each in features.outputs
    ]


def refuse_ragged(features: FeatureSet, trainer: str) -> None:
    """Raise UserError if an input has no fixed width."""
    ragged = [
        feature.name for feature in features.inputs if features.columns[feature.name].width is None
    ]
    if ragged:
        raise UserError(
            f"The trainer {trainer} cannot use {', '.join(map(printable, ragged))}: trees split on "
            f"one value a row, and texts and sets have many. Leave these inputs out, or {INSTEAD}."
        )
