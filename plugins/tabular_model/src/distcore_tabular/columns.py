"""Arrow columns as numpy vectors with their nulls apart; none imports pandas.

`pyarrow.array`, `fill_null` and `to_numpy` import pandas wherever it is installed (see
distcore_data.arrow).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from distcore_data.arrow import bits_of, plain


def null_mask(values: pa.Array) -> np.ndarray | None:
    """Which rows are null, bool [n]; None if none is."""
    if not values.null_count:
        return None
    return ~bits_of(values.buffers()[0], values)


def filled(values: pa.Array, fill: int) -> np.ndarray:
    """The numbers [n], `fill` if a row is null."""
    null, numbers = null_mask(values), plain(values)
    return numbers if null is None else np.where(null, np.array(fill, numbers.dtype), numbers)
