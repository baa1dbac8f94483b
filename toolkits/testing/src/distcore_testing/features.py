"""What every feature must hold: statistics that do not depend on partitions, codes that do not
depend on slices, an answer for whatever a column may hold."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Mapping
from contextlib import suppress
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from distcore_core.contracts import FEATURE, JSON, Feature
from distcore_core.errors import DataError
from distcore_core.registry.manager import Plugins
from distcore_testing.feature_networks import NetworkChecks
from distcore_testing.feature_rows import (
    TIMES,
    UNSEEN,
    as_json,
    awkward,
    check_codes,
    cut,
    encoded_or_refused,
    in_another_process,
    names_the_column,
    once_each,
    redictionaried,
)

RAW = {
    "number": pa.types.is_float64,
    "category": pa.types.is_dictionary,
    "string": pa.types.is_string,
    "time": lambda kind: pa.types.is_dictionary(kind) or kind == pa.timestamp("s"),
}
"""What a source gives for each way of reading a column."""

MANY = 70_000
"""Rows of a large partition: more than 16 bits count."""


class FeatureSuite(NetworkChecks):
    """Subclass with `name` (the type), `roles` it can play, `options` of the feature, and
    `values()`.

    values: a column as a source reads it (number: float64; category: dictionary of strings; string:
    utf8), at least 50 rows, missing values among them. output_options: if an output's options are
    others than an input's. unseen(): values that `values()` has not, if those of `UNSEEN` would
    not do. decodes: False for an output whose predictions are not its values again.
    """

    name: str
    roles: tuple[str, ...] = ("input",)
    options: Mapping[str, Any] = {}
    output_options: Mapping[str, Any] | None = None

    def values(self) -> pa.Array:
        raise AssertionError("the subclass gives values()")

    def unseen(self) -> pa.Array:
        """Values as a source reads them that `values()` has not."""
        return UNSEEN[self.make(self.roles[0]).raw]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Every test is run for each role the feature can play."""
        if "role" in metafunc.fixturenames:
            metafunc.parametrize("role", self.roles, scope="class")

    @pytest.fixture
    def feature(self, role: str) -> Feature:
        return self.make(role)

    def make(self, role: str) -> Feature:
        return self._made(role, "column")

    def _made(self, role: str, column: str) -> Feature:
        made: Feature = Plugins().make(
            FEATURE, self.name, self.options_of(role), column=column, role=role
        )
        return made

    def options_of(self, role: str) -> Mapping[str, Any]:
        """Of the feature in a role."""
        changed = role == "output" and self.output_options is not None
        return (self.output_options if changed else self.options) or {}

    def fitted(self, feature: Feature) -> JSON:
        """The metadata of all values."""
        return feature.finish(feature.partial(self.values()))

    def test_it_reads_what_the_values_are(self, feature: Feature) -> None:
        assert RAW[feature.raw](self.values().type)
        assert feature.name == "column"

    # -------------------------------------------------------------- statistics

    def test_statistics_do_not_depend_on_the_partition_or_the_order(self, feature: Feature) -> None:
        """To the bit: partials are merged in whatever order workers finish, in whatever groups; so
        with values that are all as frequent."""
        for values in (self.values(), once_each(self.values())):
            whole = as_json(feature.finish(feature.partial(values)))
            for seed in range(5):
                parts = cut(values, seed)
                random.Random(seed).shuffle(parts)
                assert as_json(feature.finish(merged(feature, parts))) == whole
                half = len(parts) // 2
                left, right = merged(feature, parts[:half]), merged(feature, parts[half:])
                assert as_json(feature.finish(feature.merge(right, left))) == whole

    def test_sums_do_not_depend_on_the_partition_or_the_order(self, feature: Feature) -> None:
        """Of numbers whose sums are rounded, in any groups."""
        if feature.raw != "number":
            pytest.skip("the column is not read as numbers")
        values = awkward(self.values())
        try:
            whole = as_json(feature.finish(feature.partial(values)))
        except DataError as error:
            pytest.skip(f"no other numbers than those of values() are its own: {error}")
        for seed, pieces in enumerate((2, 3, 8, 50, 200)):
            parts = cut(values, seed, pieces)
            random.Random(seed).shuffle(parts)
            for way in (merged, merged_from_the_end, merged_in_pairs):
                found = as_json(feature.finish(way(feature, parts)))
                assert found == whole, (
                    f"{pieces} partitions, {way.__name__}: sums of floats depend on their order; "
                    "add exactly (math.fsum of what is kept, integers, fractions)"
                )

    def test_a_large_partition_is_like_many_small_ones(self, feature: Feature) -> None:
        """The rows that come last count as much as the first ones."""
        values = self.values()
        order = sorted(range(len(values)), key=lambda row: repr(values[row]))
        rows = np.repeat(order, -(-MANY // len(values)))
        values = values.take(pa.array(rows))
        parts = [values.slice(start, 250) for start in range(0, len(values), 250)]
        metadata = feature.finish(feature.partial(values))
        assert as_json(feature.finish(merged(feature, parts))) == as_json(metadata), (
            f"statistics of one partition of {len(values)} rows and of {len(parts)} differ"
        )
        encoded = feature.encode(values, metadata)
        small = pa.concat_arrays([feature.encode(part, metadata) for part in parts])
        assert encoded.equals(small), f"{len(values)} rows at once are encoded otherwise"

    def test_another_column_of_the_type_changes_nothing(self, feature: Feature, role: str) -> None:
        """Each column has a feature of its own, fitted and used beside the others."""
        values = self.values()
        before = self.fitted(feature)
        codes = feature.encode(values, before).to_pylist()
        partial = feature.partial(values)
        other = self._made(role, "another column")
        for rows in (self.unseen(), values.drop_null().slice(0, 9)):
            with suppress(DataError):
                other.encode(rows, other.finish(other.partial(rows)))
        for found in (feature.finish(partial), self.fitted(self.make(role))):
            assert as_json(found) == as_json(before), (
                "fitting another column changed what is found in this one: look for mutable "
                "defaults of arguments and of classes"
            )
        assert feature.encode(values, before).to_pylist() == codes

    def test_partitions_without_any_value_change_nothing(self, feature: Feature) -> None:
        """Empty ones, and ones of missing values alone, wherever they stand."""
        values = self.values()
        empty, missing = values.slice(0, 0), pa.nulls(5, values.type)
        whole = feature.finish(feature.partial(pa.concat_arrays([missing, values])))
        parts = [empty, missing, values.slice(0, 20), empty, values.slice(20), empty]
        assert as_json(feature.finish(merged(feature, parts))) == as_json(whole)

    def test_partials_travel_to_other_processes(self, feature: Feature) -> None:
        # A partial that this very process pickled: nothing is read from disk.
        partial = pickle.loads(pickle.dumps(feature.partial(self.values())))  # noqa: S301
        assert as_json(feature.finish(partial)) == as_json(self.fitted(feature))

    def test_metadata_is_json(self, feature: Feature) -> None:
        metadata = self.fitted(feature)
        assert json.loads(as_json(metadata)) == metadata

    def test_another_process_with_other_hashes_finds_the_same(self, role: str) -> None:
        """Python orders sets of texts by a hash that each process has its own of."""
        feature, values = self.make(role), self.values()
        metadata = self.fitted(feature)
        told = in_another_process(self.name, role, dict(self.options_of(role)), values)
        assert as_json(told["metadata"]) == as_json(metadata)
        assert told["codes"] == repr(feature.encode(values, metadata).to_pylist())

    # -------------------------------------------------------------- codes

    def test_encoding_is_row_wise_and_as_declared(self, feature: Feature) -> None:
        """A row's code depends on that row and the metadata alone, and nothing is left missing."""
        values, metadata = self.values(), self.fitted(feature)
        encoded, column = feature.encode(values, metadata), feature.column(metadata)
        assert column.name == "column"
        assert len(encoded) == len(values)
        check_codes(encoded, column)
        for start, stop in ((0, 0), (0, 1), (7, 19), (len(values) - 3, len(values))):
            part = feature.encode(values.slice(start, stop - start), metadata)
            assert part.to_pylist() == encoded.slice(start, stop - start).to_pylist()
        order = pa.array(random.Random(1).sample(range(len(values)), len(values)))
        shuffled = feature.encode(values.take(order), metadata)
        assert shuffled.to_pylist() == encoded.take(order).to_pylist()

    def test_metadata_that_was_saved_encodes_alike(self, feature: Feature, role: str) -> None:
        """A model is opened in another process, from JSON."""
        metadata = self.fitted(feature)
        again = self.make(role).encode(self.values(), json.loads(as_json(metadata)))
        assert again.to_pylist() == feature.encode(self.values(), metadata).to_pylist()

    def test_a_dictionary_of_its_own_in_each_partition_changes_nothing(
        self, feature: Feature
    ) -> None:
        """Codes of a source's dictionary mean nothing, and it may hold values of no row."""
        values = self.values()
        if feature.raw not in ("category", "time"):
            pytest.skip("the column is not read as a dictionary")
        metadata = self.fitted(feature)
        told = feature.encode(values, metadata).to_pylist()
        foreign = redictionaried(values, ("no such value", "nor such a one"))
        assert as_json(feature.finish(feature.partial(foreign))) == as_json(metadata)
        assert feature.encode(foreign, metadata).to_pylist() == told
        parts = [redictionaried(part) for part in cut(values, 1)]
        assert as_json(feature.finish(merged(feature, parts))) == as_json(metadata)
        codes = [code for part in parts for code in feature.encode(part, metadata).to_pylist()]
        assert codes == told

    def test_times_are_what_their_texts_are(self, feature: Feature) -> None:
        """One column comes from a source that has times, and from one that has texts of them."""
        if feature.raw != "time":
            pytest.skip("the column is not read as times")
        times = pa.array(TIMES).cast(pa.timestamp("s"))
        texts = pa.array(TIMES).dictionary_encode()
        metadata = feature.finish(feature.partial(texts))
        assert as_json(feature.finish(feature.partial(times))) == as_json(metadata)
        told = feature.encode(texts, metadata).to_pylist()
        for start in range(4):
            assert feature.encode(times.slice(start), metadata).to_pylist() == told[start:]

    # -------------------------------------------------------------- whatever a column may hold

    def test_rows_without_any_value_are_encoded(self, feature: Feature) -> None:
        metadata = self.fitted(feature)
        encoded = feature.encode(pa.nulls(4, self.values().type), metadata)
        check_codes(encoded, feature.column(metadata))
        assert len({repr(code) for code in encoded.to_pylist()}) == 1

    def test_unseen_values_are_encoded_or_refused_by_name(self, feature: Feature) -> None:
        """Whoever predicts brings other rows than whoever trained."""
        metadata, values = self.fitted(feature), self.unseen()
        column = feature.column(metadata)
        for part in (values.slice(row, 1) for row in range(len(values))):
            encoded = encoded_or_refused(feature, part, metadata)
            if encoded is not None:
                assert len(encoded) == 1
                check_codes(encoded, column)

    def test_what_was_encoded_before_changes_nothing(self, feature: Feature) -> None:
        """No state is kept, neither in the feature nor in its metadata."""
        metadata, values = self.fitted(feature), self.values()
        before, told = as_json(metadata), feature.encode(values, metadata).to_pylist()
        for other in (self.unseen(), values.drop_null().slice(0, 9)):
            encoded_or_refused(feature, other, metadata)
            assert as_json(metadata) == before
        feature.column(metadata)
        feature.finish(feature.partial(values.slice(0, 30)))
        assert feature.encode(values, metadata).to_pylist() == told
        assert as_json(metadata) == before
        assert self.values().equals(values)

    def test_a_column_without_any_value_or_of_one_is_encoded_or_refused_by_name(
        self, feature: Feature
    ) -> None:
        """All rows missing; one value in every row; one row; no row."""
        values = self.values()
        present = values.drop_null()
        constant = present.take(pa.array([0] * 40))
        for rows in (pa.nulls(40, values.type), constant, present.slice(0, 1), values.slice(0, 0)):
            try:
                metadata = feature.finish(feature.partial(rows))
            except DataError as error:
                names_the_column(feature, error)
                continue
            assert json.loads(as_json(metadata)) == metadata
            for again in (rows, pa.nulls(3, values.type)):
                encoded = encoded_or_refused(feature, again, metadata)
                if encoded is not None:
                    check_codes(encoded, feature.column(metadata))


def merged(feature: Feature, parts: list[pa.Array]) -> Any:
    """The statistics of some partitions, put together one after another."""
    return reduce(feature.merge, [feature.partial(part) for part in parts])


def merged_from_the_end(feature: Feature, parts: list[pa.Array]) -> Any:
    """The same, each put before what is there."""
    found = [feature.partial(part) for part in reversed(parts)]
    return reduce(lambda so_far, each: feature.merge(each, so_far), found)


def merged_in_pairs(feature: Feature, parts: list[pa.Array]) -> Any:
    """The same, two by two, and those again."""
    found = [feature.partial(part) for part in parts]
    while len(found) > 1:
        pairs = [found[at : at + 2] for at in range(0, len(found), 2)]
        found = [reduce(feature.merge, pair) for pair in pairs]
    return found[0]
