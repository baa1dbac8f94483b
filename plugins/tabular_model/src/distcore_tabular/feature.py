"""What all features of this plugin have in common: what an output's options and metadata say of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distcore_core.contracts import JSON, FeatureBase


class TabularFeature(FeatureBase):
    """A feature with Ludwig's options (role "output": with a loss) and Ludwig's names in its metadata."""

    role: str
    options: Any

    @property
    def loss_weight(self) -> float:  # type: ignore[override]  # read-only here
        """`loss.weight`."""
        return float(self.options.loss.weight) if self.role == "output" else 1.0

    @property
    def default_metric(self) -> str:  # type: ignore[override]  # read-only here
        """`default_validation_metric`."""
        return str(self.options.default_validation_metric) if self.role == "output" else "loss"

    def labels(self, metadata: JSON) -> Sequence[str] | None:
        """Of the codes, as text."""
        found = metadata.get("idx2str") or metadata.get("bool2str")
        return None if found is None else [str(label) for label in found]

    def output_shape(self, metadata: JSON) -> tuple[int, ...]:
        """A probability for each class; of true and false one."""
        return (len(metadata["idx2str"]),) if "idx2str" in metadata else ()
