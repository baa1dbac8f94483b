"""One column's type: the half that needs no torch, and the half that does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from distcore_core.contracts.values import JSON, Column

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import torch

__all__ = ["Feature", "FeatureBase", "FeatureNetwork", "FeatureSet"]


@runtime_checkable
class Feature(Protocol):
    """One column's type, the half that needs no torch: statistics, encoding, decoding.

    raw: how a source reads the column: "number" (float64), "category" (dictionary of strings),
        "string", or "time" (timestamp[s] where the source has times, else as "category").
    name, options: the column's name and its validated options.

    missing: the strategy for missing values, by Ludwig's names; "": it has none.
    loss_weight: an output's share of the summed loss. default_metric: by which an output's weights
        are kept.
    encoded_by: what else decides its encoded bytes: (role's kind, name) of each, such as a
        tokenizer.

    `metadata` is what `finish` returned. `partial`, `merge` and `finish` must give the same bits
    for any partition of the rows and any order of merging. Inherit from `FeatureBase`, which has
    the members that most need not think of.
    """

    name: str
    raw: Literal["number", "category", "string", "time"]
    options: Any

    @property
    def missing(self) -> str: ...

    @property
    def loss_weight(self) -> float: ...

    @property
    def default_metric(self) -> str: ...

    @property
    def encoded_by(self) -> Sequence[tuple[str, str]]: ...

    def labels(self, metadata: JSON) -> Sequence[str] | None:
        """Names of an output's classes, in the order of their codes.

        Returns:
            None: it has none.
        """
        ...

    def output_shape(self, metadata: JSON) -> tuple[int, ...]:
        """Of one row of `FeatureNetwork.output`.

        Returns:
            () for [B], (classes,) for [B, classes], (width,) for several numbers.
        """
        ...

    def partial(self, values: pa.Array) -> Any:
        """Statistics of some rows that can be merged; picklable.

        Args:
            values: [n], as `raw` says, with nulls for missing values.
        """
        ...

    def merge(self, left: Any, right: Any) -> Any:
        """The statistics of the rows of both.

        Args:
            left, right: What `partial` or `merge` returned; either may be changed.
        """
        ...

    def finish(self, state: Any) -> JSON:
        """What `encode` and the network need to know of all rows.

        Args:
            state: What `partial` and `merge` made of them.

        Returns:
            JSON, the same bits for the same rows.

        Raises:
            DataError: The rows are nothing to learn from, such as a column without values.
        """
        ...

    def column(self, metadata: JSON) -> Column:
        """What `encode` makes of a row."""
        ...

    def encode(self, values: pa.Array, metadata: JSON) -> pa.Array:
        """Encode some rows: the code of a row depends on that row and the metadata alone.

        Args:
            values: [n], as `raw` says. Missing values that are filled from neighbours (bfill,
                ffill) were filled before; rows to be dropped were dropped before.

        Returns:
            [n], without nulls: float32 or int32, FixedSizeList of them, or List<int32> for a ragged
            column.

        Raises:
            DataError: A value is none of this type; the message names the column and it.
        """
        ...

    def network(self) -> FeatureNetwork:
        """The half that needs torch, imported when it is asked for."""
        ...


class FeatureBase:
    """An input, or an output of one value a row: what one inherits that is no more."""

    missing: str = ""
    loss_weight: float = 1.0
    default_metric: str = "loss"
    encoded_by: Sequence[tuple[str, str]] = ()

    def labels(self, metadata: JSON) -> Sequence[str] | None:
        """It has no classes."""
        return None

    def output_shape(self, metadata: JSON) -> tuple[int, ...]:
        """One value a row."""
        return ()


@runtime_checkable
class FeatureNetwork(Protocol):
    """One column's type, the half that needs torch. `metadata` is what `Feature.finish`
    returned."""

    def encoder(self, metadata: JSON) -> torch.nn.Module:
        """Inputs only.

        Returns:
            A module from the column's batch value to [B, encoder.output_size].
        """
        ...

    def decoder(self, metadata: JSON, input_size: int) -> torch.nn.Module:
        """Outputs only.

        Args:
            input_size: What the model hands on of each row.

        Returns:
            A module from [B, input_size] to logits, [B] or [B, classes].
        """
        ...

    def loss(self, logits: torch.Tensor, target: torch.Tensor, metadata: JSON) -> torch.Tensor:
        """The loss of each row, [B], already weighted by class weights; the trainer sums and
        divides.

        Args:
            logits: [B] or [B, classes], as the decoder gives them.
            target: [B] or [B, width], as `Feature.encode` gives it.
        """
        ...

    def metrics(self, metadata: JSON) -> Mapping[str, Any]:
        """What an output is judged by.

        Returns:
            Fresh torchmetrics metrics by Ludwig's names, as fresh again after `reset`; each takes
            (what `output` returned, target).
        """
        ...

    def output(self, logits: torch.Tensor, metadata: JSON) -> torch.Tensor:
        """What metrics and `predictions` read.

        Args:
            logits: [B] or [B, classes].

        Returns:
            Probabilities [B] or [B, classes], or values [B] or [B, width] in encoded units.
        """
        ...

    def predictions(self, output: np.ndarray, metadata: JSON) -> pa.RecordBatch:
        """Decoded, for people.

        Args:
            output: What `output` returned, [B] or [B, classes].

        Returns:
            B rows: `<name>_predictions`, `<name>_probabilities_<class>`, `<name>_probability`.
        """
        ...


@runtime_checkable
class FeatureSet(Protocol):
    """The fitted features of a run, as models and trainers see them."""

    @property
    def inputs(self) -> Sequence[Feature]: ...

    @property
    def outputs(self) -> Sequence[Feature]: ...

    @property
    def metadata(self) -> Mapping[str, JSON]:
        """{feature: what `Feature.finish` returned}."""
        ...

    @property
    def types(self) -> Mapping[str, str]:
        """{feature: the name of its type, as in the config}."""
        ...

    @property
    def columns(self) -> Mapping[str, Column]:
        """{feature: its encoded column}."""
        ...
