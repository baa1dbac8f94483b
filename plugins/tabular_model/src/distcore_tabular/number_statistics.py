"""Statistics of a number column that merge to the same bits in any order: exact moments, extremes
and quantiles.

Moments are a few integers whatever the number of rows. Quartiles and the mode need the distinct
values with their counts, 16 bytes each; they are kept if normalization is iq or a strategy is
fill_with_mode, and nowhere else. So memory does not grow with the rows, but for those, where it
grows with the distinct values. Quantiles that are asked for (as encoder ple does) alone are of at
most so many values, rounded if there are more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from distcore_core.contracts import JSON
from distcore_core.errors import DataError
from distcore_data.arrow import plain
from distcore_data.encoding.exactsum import Moments, moments_of_one
from distcore_data.encoding.numbers import described
from distcore_tabular.columns import null_mask
from distcore_tabular.distinct import Distinct

FAR = 1000.0
"""Standard deviations between a target's mean and 0 from which its codes are shifted: float32 has
24 bits, and 10 of them would say where all values lie."""

CONSTANT = 2.0**-24
"""Of a constant target: its unit, as a share of its size; what float32 cannot tell apart."""


@dataclass(frozen=True, eq=False)
class NumberStatistics:
    """Of some rows. low, high: extremes (inf, -inf of no values). missing: rows without a value.

    distinct: the values, or None if they are not kept.
    logs: moments of log1p of the values above -1, or None if they are not kept."""

    moments: Moments = field(default_factory=Moments)
    low: float = math.inf
    high: float = -math.inf
    missing: int = 0
    distinct: Distinct | None = None
    logs: Moments | None = None

    @classmethod
    def of(cls, values: pa.Array, ranks: int, name: str, *, logs: bool = False) -> NumberStatistics:
        """Statistics of a float64 array; NaN is missing. ranks: keep at most so many distinct
        values; logs: the moments of log1p too.

        Raises DataError for an infinity, naming the column."""
        found = None if ranks or logs else described(values)
        if found is not None:
            missing = len(values) - found.moments.count
            return cls(found.moments, found.low, found.high, missing)
        numbers, null = doubles(values)
        try:
            return cls._of(numbers, null, ranks, logs)
        except ValueError:
            if np.isinf(numbers if null is None else numbers[~null]).any():
                raise DataError(
                    f"Column {name!r} holds an infinite value, and a number feature needs finite "
                    "ones. Correct the value, or leave it empty to have it treated as missing."
                ) from None
            nan = np.isnan(numbers)
            return cls._of(numbers, nan if null is None else nan | null, ranks, logs)

    @classmethod
    def _of(
        cls, numbers: np.ndarray, null: np.ndarray | None, ranks: int, logs: bool
    ) -> NumberStatistics:
        """Raises ValueError for NaN and infinity."""
        missing = 0 if null is None else int(np.count_nonzero(null))
        if missing == len(numbers):
            distinct = Distinct.of(numbers[:0], ranks) if ranks else None
            return cls(missing=missing, distinct=distinct, logs=Moments() if logs else None)
        if null is not None and missing:
            # A value that is there stands in for the missing ones, and is taken out of the sums
            # again.
            stand_in = numbers[np.argmin(null)]
            present = numbers[~null] if ranks or logs else numbers
            numbers = np.where(null, stand_in, numbers)
            moments = _plus(Moments.of(numbers), stand_in, -missing)
        else:
            present, moments = numbers, Moments.of(numbers)
        # Adding zero makes -0.0 and 0.0, which compare equal, one value.
        low, high = float(numbers.min()) + 0.0, float(numbers.max()) + 0.0
        distinct = Distinct.of(present, ranks) if ranks else None
        return cls(moments, low, high, missing, distinct, _log_moments(present) if logs else None)

    def merge(self, other: NumberStatistics) -> NumberStatistics:
        """The statistics of both."""
        distinct = None
        if self.distinct is not None and other.distinct is not None:
            distinct = self.distinct.merge(other.distinct)
        return NumberStatistics(
            self.moments.merge(other.moments),
            min(self.low, other.low),
            max(self.high, other.high),
            self.missing + other.missing,
            distinct,
            None if self.logs is None or other.logs is None else self.logs.merge(other.logs),
        )

    def filled(self, value: float) -> NumberStatistics:
        """The statistics after every missing value became `value`."""
        if not self.missing:
            return self
        distinct = None
        if self.distinct is not None:
            distinct = self.distinct.with_value(value, self.missing)
        logs = self.logs
        if logs is not None and value > -1.0:
            logs = _plus(logs, float(np.log1p(value)), self.missing)
        return replace(
            self,
            logs=logs,
            moments=_plus(self.moments, value, self.missing),
            low=min(self.low, value),
            high=max(self.high, value),
            missing=0,
            distinct=distinct,
        )

    def quantiles(self, parts: int) -> list[float]:
        """The parts + 1 edges of so many parts of equally many values: each once, ascending, from
        the smallest value to the largest."""
        assert self.distinct is not None
        inner = (
            min(max(each, self.low), self.high) for each in self.distinct.quantiles(parts)[1:-1]
        )
        return sorted({self.low, *inner, self.high})


def fill_of(strategy: str, constant: float, state: NumberStatistics) -> float | None:
    """What a strategy fills with, in original units; None if neighbours fill, or the row is
    dropped."""
    if strategy == "fill_with_const":
        return float(constant)
    if strategy == "fill_with_mean":
        return state.moments.mean()
    if strategy == "fill_with_mode":
        assert state.distinct is not None
        return state.distinct.mode()
    return None


def scaling(
    normalization: str | None,
    metadata: JSON,
    filled: NumberStatistics,
    name: str,
    *,
    target: bool = False,
) -> JSON:
    """{"shift", "scale"}, and for iq also the quartiles.

    None: a target that lies so far from 0 that float32 would lose its differences is shifted by
    its mean. zscore: mean and standard deviation (n - 1); minmax: minimum and range; iq: median and
    interquartile range. A
    constant column has the scale 1, so that it is encoded as 0. Raises DataError if the values
    do not allow it."""
    shift, scale, quartiles = 0.0, 1.0, {}
    if normalization == "zscore":
        shift, scale = metadata["mean"], metadata["std"] or 1.0
    elif normalization == "minmax":
        shift, scale = metadata["min"], (metadata["max"] - metadata["min"]) or 1.0
    elif normalization == "iq":
        assert filled.distinct is not None
        _, q1, q2, q3, _ = filled.distinct.quantiles(4)
        shift, scale, quartiles = q2, q3 - q1, {"q1": q1, "q2": q2, "q3": q3}
        if scale == 0.0:
            raise DataError(
                f"Column {name!r}: half of the values are {q2!r}, so the interquartile range is 0 "
                "and iq cannot divide by it. Choose another preprocessing.normalization, such as "
                "zscore."
            )
    elif normalization is None and target and abs(metadata["mean"]) > FAR * metadata["std"]:
        shift = metadata["mean"]
    elif normalization == "log1p" and metadata["min"] <= -1.0:
        raise DataError(
            f"Column {name!r}: the smallest value is {metadata['min']!r}, and log1p is defined "
            "above -1 alone. Choose another preprocessing.normalization, such as zscore."
        )
    if not math.isfinite(scale) or not math.isfinite(shift):
        raise DataError(
            f"Column {name!r}: the values spread over more than a double can hold. Scale the "
            "column, or remove it."
        )
    return {"shift": shift, "scale": scale, **quartiles}


def doubles(values: pa.Array) -> tuple[np.ndarray, np.ndarray | None]:
    """The values as doubles [n] without a copy, and which of them are null (None: none);
    anything may lie there."""
    if values.type != pa.float64():
        values = values.cast(pa.float64())
    return plain(values), null_mask(values)


def standard(metadata: JSON, filled: NumberStatistics) -> JSON:
    """{"mean", "std"} of a target's codes: what a network predicts is in these units.

    Outliers count as they were. The units of a constant target are so small that whatever a network
    says, that constant is predicted.
    metadata: normalization, mean, std, shift and scale of the column. filled: its statistics."""
    if metadata["normalization"] == "log1p":
        assert filled.logs is not None
        mean, std = filled.logs.mean(), filled.logs.std(ddof=1)
    else:
        mean = (metadata["mean"] - metadata["shift"]) / metadata["scale"]
        std = metadata["std"] / metadata["scale"]
    if not std > 0.0:  # one value, or the NaN of one row
        std = CONSTANT * (abs(metadata["mean"] / metadata["scale"]) or 1.0)
    return {"mean": mean, "std": std}


def _log_moments(present: np.ndarray) -> Moments:
    return Moments.of(np.log1p(present[present > -1.0]))


def _plus(moments: Moments, value: float, times: int) -> Moments:
    """The moments with a value added so many times, or taken out of them if `times` is negative."""
    return moments.merge(moments_of_one(value, times))
