"""What every splitter is: the base class, the rows it is asked about, and a column of theirs as
codes.

A splitter is asked about the kept rows of one shard at a time (rows that were dropped or not
sampled are not in any split). One that has to know about other rows first surveys every shard; what
it must know of the shards before comes back to it as the shard's carry.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from distcore_core.errors import UserError
from distcore_data.arrow import to_numpy
from distcore_data.encoding.missing import valid
from distcore_data.encoding.texts import without_unused

PROBABILITIES = (0.7, 0.1, 0.2)
"""Ludwig's default: train, validation, test."""


@dataclass(frozen=True)
class Rows:
    """The kept rows of a shard. numbers: their global row numbers, int64 [n], increasing.

    columns: the columns that the splitter needs, each [n]; chunks may have dictionaries of their
        own."""

    numbers: np.ndarray
    columns: Mapping[str, pa.ChunkedArray]


class Splitter:
    """Base, and what a splitter does that looks at nothing but the row.

    needs: {dataset column: how to read it if no feature reads it in another way}.
    surveys: whether `survey` must see every shard before any is assigned.
    """

    surveys: ClassVar[bool] = False

    def __init__(
        self,
        seed: int = 0,
        probabilities: Sequence[float] = PROBABILITIES,
        column: str | None = None,
    ) -> None:
        self.seed = seed
        self.column = column
        self.probabilities = checked_probabilities(probabilities)
        self.needs: dict[str, str] = {} if column is None else {column: "category"}

    def place(self, block_rows: Sequence[int]) -> None:
        """Called once, before any row is assigned.

        Args:
            block_rows: Rows of each block of the scan, in order.
        """

    def survey(self, rows: Rows) -> Any:
        """Look at a shard, if `surveys` is set.

        Returns:
            What other shards must know of this one; picklable.
        """

    def carries(self, surveys: Sequence[Any]) -> list[Any]:
        """Put the surveys together.

        Args:
            surveys: Of all shards, in order.

        Returns:
            What `assign` is to be told at each shard.
        """
        return [None] * len(surveys)

    def assign(self, rows: Rows, carry: Any = None) -> np.ndarray:
        """Say the split of each row.

        Args:
            rows: The kept rows of one shard, n of them.
            carry: What `carries` has for it.

        Returns:
            int8 [n], indices into SPLITS.
        """
        raise TypeError(f"{type(self).__name__} does not assign")


def checked_probabilities(probabilities: Sequence[float]) -> tuple[float, float, float]:
    """Three shares that sum to one. Raises UserError."""
    shares = tuple(map(float, probabilities))
    if len(shares) != 3 or min(shares) < 0 or not math.isclose(sum(shares), 1.0, abs_tol=1e-6):
        raise UserError(
            f"preprocessing.split.probabilities: {list(probabilities)} are no shares of train, "
            "validation and test. Give three numbers, none negative, that sum to 1."
        )
    return shares[0], shares[1], shares[2]


def coded(column: pa.ChunkedArray) -> tuple[np.ndarray, list[Any]]:
    """Codes [n] into the list of distinct values (None if values are missing). Numbers and texts
    are taken too; -0.0 and 0.0, which compare equal, are one value."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    elif column.type.index_type == pa.int32():  # some rows of a block have all of its dictionary
        column = pa.chunked_array([without_unused(each) for each in column.chunks], column.type)
    if column.num_chunks == 0:
        return np.zeros(0, np.int32), []
    column = column.unify_dictionaries()
    values = column.chunk(0).dictionary.to_pylist()
    codes = np.concatenate(
        [_codes(chunk.indices.cast(pa.int32()), len(values)) for chunk in column.chunks]
    )
    if values.count(0.0) > 1:
        zero = values.index(0.0)
        codes[codes == values.index(0.0, zero + 1)] = zero
    return codes, [*values, None]


def _codes(indices: pa.Array, missing: int) -> np.ndarray:
    if not indices.null_count:
        return to_numpy(indices)
    plain = np.frombuffer(indices.buffers()[1], np.int32)[
        indices.offset : indices.offset + len(indices)
    ]
    return np.where(valid(pa.chunked_array([indices])), plain, np.int32(missing))
