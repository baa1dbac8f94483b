"""How far the values of a column in the validation and test split lie from those of the training
split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from distcore.workflow.split_scores import read_stretches
from distcore_core.contracts import SPLITS, Split
from distcore_data.threads import processors, run_all

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from distcore_data.cache import CacheReader

LOOKED_AT = 200_000
"""Rows of a split that are looked at."""

AT_ONCE = 64 << 20
"""Bytes of columns that are read at once: a table may have thousands."""


def drifts_of(reader: CacheReader, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """`drifts` of each of these columns of a cache, which hold a number or a code a row."""
    rows = {split: min(LOOKED_AT, n) for split in SPLITS if (n := reader.rows(split))}
    several = max(1, AT_ONCE // (4 * max(1, sum(rows.values()))))
    found: dict[str, dict[str, float]] = {}
    for start in range(0, len(names), several):
        some = names[start : start + several]
        batches = {split: read_stretches(reader, split, LOOKED_AT, some) for split in rows}
        apart = run_all(partial(_drifts_in, batches), some, processors())
        found.update(zip(some, apart, strict=True))
    return found


def drifts(splits: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Of each split but `train`, how far its values lie from those of `train`, if there are any.

    Args:
        splits: Numbers or codes of each, [n].

    Returns:
        {split: from 0, the same, to 1, nothing in common}.
    """
    import numpy as np

    others = dict(splits)
    train = others.pop("train", None)
    if train is None:
        return {}
    apart = _codes_apart
    if train.dtype.kind == "f":
        train, apart = np.sort(train), _numbers_apart
    return {split: apart(train, each) for split, each in others.items()}


# ------------------------------------------------------------------ inside


def _drifts_in(batches: Mapping[Split, pa.RecordBatch], name: str) -> dict[str, float]:
    """`drifts` of a column of these splits."""
    from distcore_data.arrow import to_numpy

    return drifts({split: to_numpy(batch.column(name)) for split, batch in batches.items()})


def _codes_apart(train: np.ndarray, other: np.ndarray) -> float:
    """The half of the sum of differences of shares; 0: the same, 1: nothing in common."""
    import numpy as np

    size = int(max(train.max(initial=0), other.max(initial=0))) + 1
    shares = [
        np.bincount(np.maximum(each, 0), minlength=size) / max(1, len(each))
        for each in (train, other)
    ]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def _numbers_apart(train: np.ndarray, other: np.ndarray) -> float:
    """The largest difference of two distributions' shares below a value (Kolmogorov–Smirnov); 0:
    the same, 1: nothing in common. train: sorted."""
    import numpy as np

    if not len(other):
        return float(len(train) > 0)
    # Between two values of `other` its share stays and that of `train` rises: they lie furthest
    # apart at one of these values or right below it.
    values, counts = np.unique(other, return_counts=True)
    below, up_to = (
        np.searchsorted(train, values, side=side) / max(1, len(train)) for side in ("left", "right")
    )
    share = counts.cumsum() / len(other)
    before = np.concatenate([[0.0], share[:-1]])
    return float(np.maximum(np.abs(below - before), np.abs(up_to - share)).max())
