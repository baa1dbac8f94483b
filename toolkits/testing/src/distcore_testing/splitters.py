"""What every splitter must hold: a split for each row that depends on the seed and the data, and
on no shard, order or process."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from distcore_core.errors import UserError
from distcore_data import Splitter
from distcore_data.encoding.splits import make_splitter
from distcore_data.encoding.splitter import Rows
from distcore_testing.elsewhere import said_elsewhere

ROWS = 1000

CHILD = """
import base64, json, pickle, sys
from distcore_testing.splitters import assigned
section, seed, names, edges = json.loads(sys.argv[1])
print("FOUND" + json.dumps(assigned(section, seed, names, edges).tolist()))
"""


class SplitterSuite:
    """Subclass with `name`, `column` and `options`: what `preprocessing.split` holds.

    values(): the column's, as texts, at least 1000 rows. column: None if it looks at no column.
    seeded: False if the seed does not count. shares: False if the probabilities do not.
    row_wise: False if a row's split depends on other rows, as of a stratified one.
    """

    name: str
    options: Mapping[str, Any] = {}
    column: str | None = "column"
    seeded = True
    shares = True
    row_wise = True

    def values(self) -> list[str | None]:
        """Names of a few kinds, some missing."""
        return [None if row % 29 == 7 else f"name {row * row % 997}" for row in range(ROWS)]

    def section(self, **more: Any) -> dict[str, Any]:
        """Of the config's preprocessing.split."""
        shares = {"probabilities": [0.6, 0.2, 0.2]} if self.shares else {}
        column = {} if self.column is None else {"column": self.column}
        return {"type": self.name, **shares, **column, **self.options, **more}

    def assigned(self, edges: Sequence[int] = (0, ROWS), seed: int = 3, **more: Any) -> np.ndarray:
        """The split of each row, if shards end at these rows."""
        return assigned(self.section(**more), seed, self.values(), edges)

    def test_every_row_has_a_split(self) -> None:
        found = self.assigned()
        assert found.dtype == np.int8
        assert found.shape == (ROWS,)
        assert set(found.tolist()) <= {0, 1, 2}
        assert len(set(found.tolist())) > 1

    def test_shards_do_not_count(self) -> None:
        """Wherever they are cut, with empty ones, and in whatever order they come."""
        whole = self.assigned()
        for edges in ([0, 400, ROWS], [0, 1, 2, 999, ROWS], [0, 0, 300, 300, 700, ROWS, ROWS]):
            assert self.assigned(edges).tolist() == whole.tolist()

    def test_dictionaries_of_chunks_do_not_count(self) -> None:
        """Each chunk of a shard may have one of its own, and values of no row in it."""
        values = self.values()
        parts = [values[:300], values[300:310], values[310:]]
        chunks = [foreign(part, seed) for seed, part in enumerate(parts)]
        chunked = pa.chunked_array(chunks, pa.dictionary(pa.int32(), pa.string()))
        found = split_of(self.made(), [chunked], [0, ROWS])
        assert found.tolist() == self.assigned().tolist()

    def test_it_keeps_nothing_of_what_it_was_asked(self) -> None:
        """A worker is asked about some shards, in any order, and again if it died."""
        made, values, edges = self.made(), self.values(), [0, 250, 500, 750, ROWS]
        shards = [foreign(values[start:stop]) for start, stop in pairwise(edges)]
        first = split_of(made, [pa.chunked_array([each]) for each in shards], edges)
        again = split_of(
            made, [pa.chunked_array([each]) for each in shards], edges, order=[3, 1, 0, 2]
        )
        assert again.tolist() == first.tolist()

    def test_it_travels_to_workers_and_other_hashes_change_nothing(self) -> None:
        edges = [0, 333, ROWS]
        told = json.dumps([self.section(), 3, self.values(), edges])
        found = json.loads(said_elsewhere(CHILD, told).partition("FOUND")[2])
        assert found == self.assigned(edges).tolist()

    def test_the_seed_decides(self) -> None:
        assert self.assigned(seed=3).tolist() == self.assigned(seed=3).tolist()
        differs = self.assigned(seed=4).tolist() != self.assigned(seed=3).tolist()
        assert differs == self.seeded

    def test_shares_are_about_those_that_were_asked_for(self) -> None:
        """A share of 0 gives no row at all."""
        if not self.shares:
            pytest.skip("the probabilities do not count")
        for shares in ([0.6, 0.2, 0.2], [0.5, 0.0, 0.5], [0.8, 0.2, 0.0], [0.1, 0.1, 0.8]):
            counts = np.bincount(self.assigned(probabilities=shares), minlength=3) / ROWS
            assert all(count == 0 for count, share in zip(counts, shares, strict=True) if not share)
            assert np.abs(counts - shares).max() < 0.15
        assert set(self.assigned(probabilities=[1.0, 0.0, 0.0]).tolist()) == {0}

    def test_rows_that_are_left_out_change_no_other_row(self) -> None:
        """Rows without a target are dropped before; a row keeps its number, and its split."""
        if not self.row_wise:
            pytest.skip("a row's split depends on others")
        kept = sorted(random.Random(1).sample(range(ROWS), 700))
        values = self.values()
        column = pa.chunked_array([foreign([values[row] for row in kept])])
        numbers = np.array(kept, np.int64)
        found = split_of(self.made(), [column], [0, len(kept)], numbers=numbers)
        assert found.tolist() == self.assigned()[kept].tolist()

    def test_what_it_needs_is_read(self) -> None:
        needs = self.made().needs
        assert self.column is None or self.column in needs
        assert set(needs.values()) <= {"number", "category", "string"}

    def test_probabilities_that_are_none_are_refused(self) -> None:
        if not self.shares:
            pytest.skip("the probabilities do not count")
        for shares in ([0.5, 0.5, 0.5], [1.2, -0.2, 0.0], [1.0]):
            with pytest.raises(UserError, match="probabilities"):
                self.made(probabilities=shares)

    def made(self, **more: Any) -> Splitter:
        return make_splitter(self.section(**more), 3)


# ------------------------------------------------------------------ parts


def assigned(
    section: Mapping[str, Any], seed: int, values: list[str | None], edges: Sequence[int]
) -> np.ndarray:
    """The split of each row, by a splitter of this process."""
    shards = [pa.chunked_array([foreign(values[start:stop])]) for start, stop in pairwise(edges)]
    return split_of(make_splitter(section, seed), shards, edges)


def foreign(values: Sequence[str | None], seed: int = 0) -> pa.DictionaryArray:
    """Values by a dictionary in an order of its own, with one of no row."""
    labels = sorted({each for each in values if each is not None}, key=lambda each: each[::-1])
    labels = [*labels[seed:], *labels[:seed], "1"]
    code = {label: at for at, label in enumerate(labels)}
    codes = pa.array([None if each is None else code[each] for each in values], pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array(labels, pa.string()))


def split_of(
    splitter: Splitter,
    shards: Sequence[pa.ChunkedArray],
    edges: Sequence[int],
    order: Sequence[int] | None = None,
    numbers: np.ndarray | None = None,
) -> np.ndarray:
    """Ask about each shard as a build of a cache does: surveys first, by copies that travelled."""
    numbers = np.arange(edges[-1]) if numbers is None else numbers
    splitter.place([max(0, int(stop - start)) for start, stop in pairwise(edges)])
    needs = splitter.needs
    parts = [
        Rows(numbers[start:stop], dict.fromkeys(needs, shard))
        for (start, stop), shard in zip(pairwise(edges), shards, strict=True)
    ]
    # A splitter that this very process pickled: nothing is read from disk.
    packed = pickle.dumps(splitter)
    surveys = [None] * len(parts)
    if splitter.surveys:
        surveys = [pickle.loads(packed).survey(each) for each in parts]  # noqa: S301
    carries = splitter.carries(surveys)
    found: dict[int, np.ndarray] = {}
    worker = pickle.loads(packed)  # noqa: S301
    for at in order or range(len(parts)):
        found[at] = worker.assign(parts[at], pickle.loads(pickle.dumps(carries[at])))  # noqa: S301
        assert len(found[at]) == len(parts[at].numbers)
    return np.concatenate([found[at] for at in range(len(parts))])
