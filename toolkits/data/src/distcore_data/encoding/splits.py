"""Which split a row is in: a function of the seed, the row's number and the data's values, never of
a partition.

random    each row by itself, from a hash of (seed, row number)
hash      each row by itself, from a hash of a column's value: Ludwig's own, so the assignment is
          Ludwig's
fixed     a column says it: 0, 1, 2, or train, validation, test
stratify  in every class of a column train has its proportion to within one row, the others to
          within two
datetime  by time: the earliest rows train, the latest test
given     the dataset came as separate sets
"""

from __future__ import annotations

import hashlib
import json
import math
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from distcore_core.contracts import SPLITS, Split
from distcore_core.errors import UserError
from distcore_core.registry.manager import environment_plugins
from distcore_data.blame import BadRow
from distcore_data.encoding.datetime_split import DatetimeSplitter
from distcore_data.encoding.hashing import key_of, row_hashes, threshold
from distcore_data.encoding.splitter import PROBABILITIES, Rows, Splitter, coded
from distcore_data.encoding.stratified_split import StratifySplitter
from distcore_data.roles import SPLITTER

if TYPE_CHECKING:
    from distcore_core.registry.manager import Plugins

FIXED_VALUES = {
    "0": 0,
    "1": 1,
    "2": 2,
    "train": 0,
    "training": 0,
    "validation": 1,
    "val": 1,
    "test": 2,
}


LARGEST_WHOLE = 2**53
"""From here on a double is not every whole number."""

FILE_NAME = bytes.maketrans(b"+/", b"__")
"""Base64 without the two letters that no name of a file has."""


class RandomSplitter(Splitter):
    """Each row by itself: its hash falls below the share of train, of validation, or of neither."""

    def assign(self, rows: Rows, carry: Any = None) -> np.ndarray:
        hashes = row_hashes(key_of(self.seed, "split"), rows.numbers)
        return cut(hashes, self.probabilities)


class HashSplitter(Splitter):
    """By a hash of the column's value: rows of one value stay together, also when rows are added
    later, unless these make floats of whole numbers: 7.0 is another text than 7, and Ludwig's hash
    is of the text."""

    def assign(self, rows: Rows, carry: Any = None) -> np.ndarray:
        codes, values = coded(rows.columns[self.column or ""])
        self._refuse_rounded(rows, codes, values)
        first, second = (self.probabilities[0] * 2**32, self.probabilities[1] * 2**32)
        hashes = np.array([ludwig_hash(value) for value in values], np.float64)
        splits = np.where(hashes < first, 0, np.where(hashes < first + second, 1, 2)).astype(
            np.int8
        )
        return splits[codes]

    def _refuse_rounded(self, rows: Rows, codes: np.ndarray, values: Sequence[Any]) -> None:
        """Raise BadRow for a whole number that is none of a double: a number feature reads the
        column, too, and several ids may have become one."""
        large = [isinstance(each, float) and abs(each) >= LARGEST_WHOLE for each in values]
        if any(large):
            row = int(np.flatnonzero(np.array(large)[codes])[0])
            raise BadRow(
                f"Column {self.column!r}: "
                f"{values[codes[row]]:.0f} is read as a number by a feature, too, and such large "
                "numbers are rounded, so several values would be one. Give the split a column of "
                "its own, or make the feature a category.",
                int(rows.numbers[row]),
            )


class FixedSplitter(Splitter):
    """The column says it."""

    def __init__(self, seed: int, column: str | None) -> None:
        super().__init__(seed, column=column or "split")

    def assign(self, rows: Rows, carry: Any = None) -> np.ndarray:
        codes, values = coded(rows.columns[self.column or ""])
        splits = np.array([fixed_value(value) for value in values], np.int8)
        found = splits[codes]
        bad = np.flatnonzero(found < 0)
        if len(bad):
            row = int(bad[0])
            value = values[codes[row]]
            raise BadRow(
                f"Column {self.column!r}: "
                + ("the value is missing" if value is None else f"{value!r} is no split")
                + ". Write 0 or train, 1 or validation, 2 or test in every row.",
                int(rows.numbers[row]),
            )
        return found


class GivenSplitter(Splitter):
    """The dataset is several sets one after another; `partition_splits` gives the split of each
    block of the scan."""

    def __init__(self, partition_splits: Callable[[], Sequence[int]]) -> None:
        super().__init__()
        self.partition_splits = partition_splits
        self.ends = np.zeros(0, np.int64)
        self.splits = np.zeros(0, np.int8)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "partition_splits": None}

    def place(self, block_rows: Sequence[int]) -> None:
        self.ends = np.cumsum(np.asarray(block_rows, np.int64))
        self.splits = np.asarray(self.partition_splits(), np.int8)
        if len(self.ends) != len(self.splits):
            raise ValueError(f"{len(self.splits)} splits are given for {len(self.ends)} blocks")

    def assign(self, rows: Rows, carry: Any = None) -> np.ndarray:
        return self.splits[np.searchsorted(self.ends, rows.numbers, side="right")]


# ------------------------------------------------------------------ making one


def make_splitter(
    options: Mapping[str, Any], seed: int, plugins: Plugins | None = None
) -> Splitter:
    """The splitter that `preprocessing.split` declares: type, probabilities, column, and what its
    own options say.

    Raises UserError for a column that is not named or probabilities that are none, PluginError for
    a type that nobody offers."""
    shared = {"type", "probabilities", "column"}
    return (plugins or environment_plugins()).make(
        SPLITTER,
        options.get("type", "random"),
        {name: value for name, value in options.items() if name not in shared} or None,
        seed=seed,
        probabilities=options.get("probabilities") or PROBABILITIES,
        column=options.get("column"),
    )


def builtin_splitter(
    name: str, seed: int, probabilities: Sequence[float], column: str | None
) -> Splitter | None:
    """The toolkit's own splitter of a name, or None."""
    kinds: dict[str, type[Splitter]] = {
        "hash": HashSplitter,
        "stratify": StratifySplitter,
        "datetime": DatetimeSplitter,
    }
    if name == "random":
        return RandomSplitter(seed, probabilities)
    if name == "fixed":
        return FixedSplitter(seed, column)
    if name not in kinds:
        return None
    if not column:
        raise UserError(
            f"preprocessing.split.column is missing: {name} splits by a column. Name one of the "
            "dataset's."
        )
    return kinds[name](seed, probabilities, column)


# ------------------------------------------------------------------ parts


def cut(hashes: np.ndarray, probabilities: tuple[float, float, float]) -> np.ndarray:
    """0, 1 or 2 for each hash: int8 [n]."""
    train, known = threshold(probabilities[0]), threshold(probabilities[0] + probabilities[1])
    if probabilities[2] == 0.0:
        known = 2**64 - 1  # shares that are rounded must not leave a row over
    splits = np.zeros(len(hashes), np.int8)
    for limit in (train, known):
        splits += hashes > np.uint64(limit) if limit >= 0 else np.int8(1)
    return splits


def fixed_value(value: Any) -> int:
    """Index of the split that a value of a fixed split column names; -1 for none."""
    text = str(value).strip().lower()
    if text in FIXED_VALUES:
        return FIXED_VALUES[text]
    try:
        number = float(text)
    except ValueError:
        return -1
    return int(number) if number in (0.0, 1.0, 2.0) else -1


def ludwig_hash(value: Any) -> int:
    """32 bits that Ludwig's hash split takes of a value: crc32 of the base64 md5 of `{"value": …}`.

    A text that spells a number or a truth value is hashed as what pandas would have made of it."""
    read = math.nan if value is None else _as_read(value)
    # As json.dumps writes it, which takes twice as long.
    told = encode_basestring_ascii(read) if isinstance(read, str) else json.dumps(read)
    digest = hashlib.md5(b'{"value": %s}' % told.encode(), usedforsecurity=False).digest()
    return crc32(b2a_base64(digest, newline=False).translate(FILE_NAME))


def _as_read(value: Any) -> Any:
    if not isinstance(value, str):
        return int(value) if isinstance(value, float) and value.is_integer() else value
    if value in ("True", "False"):
        return value == "True"
    if not value.isascii() or "_" in value:  # Python reads 1_0 and １０ as numbers, pandas does not
        return value
    if value[:1].isalpha() and value[0] not in "nNiI":  # which no number but nan and inf does
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def describe(counts: Mapping[Split, int]) -> str:
    """`70 train, 10 validation, 20 test`."""
    return ", ".join(f"{counts.get(split, 0)} {split}" for split in SPLITS)
