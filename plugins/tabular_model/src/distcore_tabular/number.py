"""Feature `number`: a finite number, filled if missing and normalised; as an output, a
regression."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from distcore_core.contracts import JSON, Column
from distcore_core.errors import DataError
from distcore_data.arrow import from_numpy
from distcore_data.encoding.numbers import scaled
from distcore_tabular.distinct import ALL, ENOUGH
from distcore_tabular.feature import METRICS, TabularFeature
from distcore_tabular.member_network import MemberNetwork
from distcore_tabular.number_statistics import (
    NumberStatistics,
    doubles,
    fill_of,
    scaling,
    standard,
)
from distcore_tabular.options_parts import HuberOptions, NumberLossOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

CHUNK = 1 << 14
"""Rows encoded at a time: their doubles stay in a core's cache."""


class NumberFeature(TabularFeature):
    """The data half. Metadata: normalization, shift and scale (a value x is encoded as (x - shift)
    / scale, or as log1p(x)), fill (what a missing value becomes, in original units), and what was
    found: count, missing, mean, std (n - 1), min, max, and q1, q2, q3 if they were needed; with an
    outlier_strategy also outlier: {low, high, fill}; if quantiles were asked for also those, each
    value once; of an output also standard: {mean, std} of its codes.

    As in Ludwig, statistics are of the column as it is after filling: with a constant, the mean,
    the mode, or values of neighbours (bfill, ffill).
    """

    kind = "number"
    raw: Literal["number"] = "number"

    def __init__(self, name: str, role: str, options: Any) -> None:
        super().__init__(name, role, options)
        strategies = (self.missing, options.preprocessing.outlier_strategy)
        self._logs = role == "output" and options.preprocessing.normalization == "log1p"
        exact = options.preprocessing.normalization == "iq" or "fill_with_mode" in strategies
        rounded = options.preprocessing.quantiles is not None
        self._ranks = ALL if exact else ENOUGH if rounded else 0

    def partial(self, values: pa.Array) -> NumberStatistics:
        """Statistics of some rows. Raises DataError for an infinity."""
        return NumberStatistics.of(values, self._ranks, self.name, logs=self._logs)

    def merge(self, left: NumberStatistics, right: NumberStatistics) -> NumberStatistics:
        return left.merge(right)

    def finish(self, state: NumberStatistics) -> JSON:
        """Raises DataError if there is no value, or the values cannot be normalised as asked."""
        options = self.options.preprocessing
        if not state.moments.count:
            raise self.nothing_in_it()
        if (
            options.normalization == "log1p"
            and "fill_with_const" in (self.missing, options.outlier_strategy)
            and options.fill_value <= -1.0
        ):  # told now, though nothing may be filled before the model predicts
            raise DataError(
                f"Column {self.name!r}: preprocessing.fill_value is {options.fill_value!r}, and "
                "log1p is defined above -1 alone. Give another fill_value, or choose another "
                "preprocessing.normalization, such as zscore."
            )
        fill = fill_of(self.missing, options.fill_value, state)
        filled = state if fill is None else state.filled(fill)
        mean, std = filled.moments.mean(), filled.moments.std(ddof=1)
        target = self.role == "output"
        zscore = options.normalization == "zscore"
        if (zscore or target or options.outlier_strategy is not None) and (
            math.isinf(std) or (std == 0.0 and filled.low < filled.high)
        ):
            raise DataError(
                f"Column {self.name!r}: no double holds the standard deviation of its values, "
                f"which lie from {filled.low!r} to {filled.high!r}. Scale the column, or "
                "correct those that are no numbers of it, or leave them empty."
            )
        metadata: JSON = {
            "normalization": options.normalization,
            "count": state.moments.count,
            "missing": state.missing,
            "mean": mean,
            "std": std if math.isfinite(std) else 0.0,
            "min": filled.low,
            "max": filled.high,
            # If neighbours fill or rows are dropped none is left to fill, but for a column without
            # any neighbour.
            "fill": mean if fill is None else fill,
        }
        metadata |= scaling(options.normalization, metadata, filled, self.name, target=target)
        if target:
            metadata["standard"] = standard(metadata, filled)
        if options.outlier_strategy is not None:
            reach = options.outlier_threshold * (metadata["std"] or 1.0)
            outlier = fill_of(options.outlier_strategy, options.fill_value, state)
            metadata["outlier"] = {"low": mean - reach, "high": mean + reach, "fill": outlier}
        if options.quantiles is not None:
            metadata["quantiles"] = filled.quantiles(options.quantiles)
        return metadata

    def column(self, metadata: JSON) -> Column:
        return Column(name=self.name, dtype="float32")

    def encode(self, values: pa.Array, metadata: JSON) -> pa.Array:
        """Normalised values: float32 [n]. Raises DataError for a value that has no finite code."""
        found = _scaled(values, metadata)
        if found is not None:
            return found
        plain, null = doubles(values)
        out = np.empty(len(plain), np.float32)
        work = np.empty(min(CHUNK, len(plain)))
        # Under a null lies whatever the source left there; it is overwritten at once.
        with np.errstate(all="ignore"):
            fill = np.empty(1, np.float32)
            _normalise(np.array([metadata["fill"]]), metadata, np.empty(1), fill)
            for start in range(0, len(plain), CHUNK):
                part = slice(start, min(start + CHUNK, len(plain)))
                _normalise(plain[part], metadata, work[: part.stop - start], out[part])
                if null is not None:
                    np.putmask(out[part], null[part], fill)
            total = out.sum()
        if not np.isfinite(total):
            np.putmask(out, np.isnan(plain), fill)
            self._check_finite(plain, out, metadata["normalization"])
        return from_numpy(out)

    def decode(self, codes: np.ndarray, metadata: JSON) -> pa.Array:
        """Values in original units: float64 [n]."""
        codes = codes.astype(np.float64)
        if metadata["normalization"] == "log1p":
            with np.errstate(over="ignore"):  # that a prediction is infinite is told by itself
                return from_numpy(np.expm1(codes))
        return from_numpy(codes * metadata["scale"] + metadata["shift"])

    def network(self) -> NumberNetwork:
        return NumberNetwork(self)

    def _check_finite(self, plain: np.ndarray, out: np.ndarray, normalization: str | None) -> None:
        bad = np.flatnonzero(~np.isfinite(out))
        if len(bad):
            value = float(plain[bad[0]])
            why = (
                "log1p is defined above -1 alone"
                if normalization == "log1p" and value <= -1.0
                else "it is out of range"
            )
            raise DataError(
                f"Column {self.name!r}: {value!r} cannot be encoded; {why}. Correct the value, "
                "leave it empty, or choose another preprocessing.normalization."
            )


def _scaled(values: pa.Array, metadata: JSON) -> pa.Array | None:
    """What `_normalise` gives, by compiled code; None if that has no answer."""
    if metadata["normalization"] == "log1p" or metadata.get("outlier") is not None:
        return None
    shift, scale = float(metadata["shift"]), float(metadata["scale"])
    return scaled(values, shift, scale, (float(metadata["fill"]) - shift) / scale)


def _normalise(values: np.ndarray, metadata: JSON, work: np.ndarray, out: np.ndarray) -> None:
    """Encode finite values [k] into out, float32 [k]. work: [k] doubles that may be overwritten."""
    outlier = metadata.get("outlier")
    if outlier is not None:
        np.copyto(work, values)
        np.putmask(work, (values < outlier["low"]) | (values > outlier["high"]), outlier["fill"])
        values = work
    if metadata["normalization"] == "log1p":
        out[:] = np.log1p(values, out=work)
    elif metadata["normalization"] is None and not metadata["shift"]:
        out[:] = values
    else:
        np.subtract(values, metadata["shift"], out=work)
        np.divide(work, metadata["scale"], out=work)
        out[:] = work


def edges(metadata: JSON) -> np.ndarray:
    """The quantiles as they are encoded, each code once, in ascending order: float32 [k]."""
    values = np.array(metadata["quantiles"])
    codes = np.empty(len(values), np.float32)
    _normalise(values, {**metadata, "outlier": None}, np.empty(len(values)), codes)
    return np.unique(codes)


class NumberNetwork(MemberNetwork):
    """The half that needs torch.

    Logits are in standard deviations from the mean of the target's codes, so that a network learns
    a target of any size alike; the loss is in these units. Metrics are in the target's own.
    """

    def loss(self, logits: torch.Tensor, target: torch.Tensor, metadata: JSON) -> torch.Tensor:
        """Loss of each row, [B]. target: codes [B]."""
        from distcore_tabular.units import standardised

        return super().loss(logits, standardised(target, metadata), metadata)

    def metrics(self, metadata: JSON) -> Mapping[str, Any]:
        """Ludwig's, in the target's own units; `loss` as the loss that is trained on."""
        from distcore_tabular import losses
        from distcore_tabular.units import in_own_units, standardised

        options = self.feature.options.loss
        own = isinstance(options, NumberLossOptions | HuberOptions)

        def errors(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            if not own:
                return self.loss(standardised(output, metadata), target, metadata)
            pair = standardised(output, metadata), standardised(target, metadata)
            return losses.number_errors(*pair, options, metadata)

        found = self.feature.metrics(METRICS["number"], metadata, errors)
        return {
            name: metric if name == "loss" else in_own_units(metric, metadata)
            for name, metric in found.items()
        }

    def output(self, logits: torch.Tensor, metadata: JSON) -> torch.Tensor:
        """Values [B] in encoded units, clipped if the config says so (in original units)."""
        from distcore_tabular.units import codes_of

        values = codes_of(logits.float(), metadata)
        if self.feature.options.clip is None:
            return values
        clip, bounds = np.array(self.feature.options.clip), np.empty(2, np.float32)
        if metadata["normalization"] == "log1p":
            clip = np.maximum(clip, -1.0)  # no prediction lies below
        unclipped = {**metadata, "outlier": None}
        with np.errstate(divide="ignore"):  # log1p of -1 is -inf, which bounds nothing
            _normalise(clip, unclipped, np.empty(2), bounds)
        return values.clamp(float(bounds[0]), float(bounds[1]))

    def predictions(self, output: np.ndarray, metadata: JSON) -> pa.RecordBatch:
        """`<name>_predictions` in original units, float64."""
        values, clip = self.feature.decode(output, metadata), self.feature.options.clip
        if clip is not None:
            import torch

            # The codes of the bounds are rounded, and may lie a little outside. No others are
            # moved: truths, which come here too, may lie anywhere.
            bounds = self.output(torch.tensor([-torch.inf, torch.inf]), metadata).numpy()
            numbers = values.to_numpy()
            clipped = np.where(np.isin(output, bounds), np.clip(numbers, *clip), numbers)
            values = from_numpy(clipped)
        return pa.record_batch({f"{self.feature.name}_predictions": values})
