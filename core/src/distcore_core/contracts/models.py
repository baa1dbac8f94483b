"""What is fitted: models before, predictors after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from distcore_core.contracts.features import FeatureSet
from distcore_core.contracts.loading import Batch

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = ["Model", "ModelBase", "Predictor"]


@runtime_checkable
class Model(Protocol):
    """Makes the torch module. Its forward takes a `Batch` (a mapping of column names to tensors)
    and returns {output feature: logits}."""

    def build(self, features: FeatureSet) -> torch.nn.Module:
        """A fresh module for fitted features; torch's random numbers decide its weights."""
        ...

    def check_trust(self, trust: bool) -> None:
        """Called before a saved model is built.

        Args:
            trust: The user vouches for its code.

        Raises:
            ArtifactError: Building it would run code that nobody vouched for.
        """
        ...


class ModelBase:
    """A model of this plugin's own code."""

    def check_trust(self, trust: bool) -> None:
        """It runs no other."""


@runtime_checkable
class Predictor(Protocol):
    """A fitted model, whatever made it."""

    def predict(self, batch: Batch) -> dict[str, np.ndarray]:
        """What it makes of some rows.

        Args:
            batch: Encoded inputs; targets may be missing.

        Returns:
            {output feature: [B] or [B, classes]}, as `FeatureNetwork.output` describes:
            probabilities or encoded values.
        """
        ...
