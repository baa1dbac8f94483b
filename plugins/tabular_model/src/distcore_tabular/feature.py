"""What all features of this plugin have in common: what an output's options and metadata say of
it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from distcore_core.contracts import JSON, FeatureBase, Role
from distcore_core.errors import DataError
from distcore_core.registry.manager import environment_plugins
from distcore_data.arrow import strings
from distcore_data.arrow_list import ArrowList
from distcore_data.members import make_named
from distcore_tabular import lazy_signal
from distcore_tabular.roles import DECODER, ENCODER, LOSS, METRIC
from distcore_tabular.vocabulary import Labels

_ERRORS = ("mean_squared_error", "mean_absolute_error", "root_mean_squared_error")
METRICS = {
    "number": (
        "loss",
        *_ERRORS,
        "root_mean_squared_percentage_error",
        "mean_absolute_percentage_error",
        "r2",
    ),
    "binary": ("loss", "accuracy", "precision", "recall", "specificity", "roc_auc"),
    "category": ("loss", "accuracy", "accuracy_micro", "roc_auc", "hits_at_k"),
}
"""What is measured of each type of output, whatever its config asks for."""


def metric_name(given: Any) -> str:
    """The name of a metric in the options, which give it alone or in a section with its options."""
    return given if isinstance(given, str) else str(given.type)


class TabularFeature(FeatureBase):
    """A feature with Ludwig's options (role "output": with a loss) and Ludwig's names in its
    metadata.

    kind: its type. block: plugins that its members must not be of."""

    kind: ClassVar[str]
    block: tuple[str, ...] = ()

    def __init__(self, name: str, role: str, options: Any) -> None:
        self.name = name
        self.role = role
        self.options = options
        self.missing = options.preprocessing.missing_value_strategy
        self._vocabulary: tuple[JSON, Labels] | None = None

    def nothing_in_it(self, lacks: str = "value") -> DataError:
        """What to raise for a column of which nothing can be learned. lacks: what none of its rows
        has."""
        return DataError(
            f"Column {self.name!r} has no {lacks} in any row, and a {self.kind} feature needs "
            "some. Fill the column, or remove the feature."
        )

    def encoder(self, metadata: JSON) -> Any:
        """The module of the encoder that the options name."""
        return self._member(ENCODER, self.options.encoder, metadata=metadata)

    def decoder(self, metadata: JSON, input_size: int) -> Any:
        """The module of the decoder that the options name."""
        return self._member(DECODER, self.options.decoder, metadata=metadata, input_size=input_size)

    def loss(self) -> Any:
        """The loss that the options name: (logits, target, metadata) → [B]."""
        return self._member(LOSS, self.options.loss)

    def metrics(self, names: Sequence[str], metadata: JSON, loss: Any) -> dict[str, Any]:
        """Fresh metrics of these names, and of those that the options name beside them.

        loss: (output, target) → the loss of each row, [B]."""
        lazy_signal.wait_for_use()  # most metrics are torchmetrics'
        plugins, context = (
            environment_plugins(self.block),
            {"metadata": metadata, "feature": self.options, "loss": loss},
        )
        sections = {
            metric_name(each): None if isinstance(each, str) else each
            for each in self.options.metrics
        }
        return {
            name: make_named(plugins, METRIC, f"{self.kind}.{name}", sections.get(name), **context)
            for name in dict.fromkeys((*names, *sections))
        }

    def _member(self, role: Role[Any], options: Any, **context: Any) -> Any:
        return make_named(
            environment_plugins(self.block), role, f"{self.kind}.{options.type}", options, **context
        )

    @property
    def loss_weight(self) -> float:  # type: ignore[override]  # read-only here
        """`loss.weight`."""
        return float(self.options.loss.weight) if self.role == "output" else 1.0

    @property
    def default_metric(self) -> str:  # type: ignore[override]  # read-only here
        """`default_validation_metric`."""
        return str(self.options.default_validation_metric) if self.role == "output" else "loss"

    def vocabulary(self, metadata: JSON) -> Labels:
        """Of `idx2str`, kept for the next rows."""
        kept = self._vocabulary
        if kept is None or kept[0] is not metadata:
            found = metadata["idx2str"]
            labels = found.values if isinstance(found, ArrowList) else strings(found)
            kept = self._vocabulary = (metadata, Labels(labels))
        return kept[1]

    def labels(self, metadata: JSON) -> Sequence[str] | None:
        """Of the codes, as text."""
        found = metadata.get("idx2str") or metadata.get("bool2str")
        return None if found is None else [str(label) for label in found]

    def output_shape(self, metadata: JSON) -> tuple[int, ...]:
        """A probability for each class; of true and false one."""
        return (len(metadata["idx2str"]),) if "idx2str" in metadata else ()
