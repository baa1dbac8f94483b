"""Splitters with a fault each: by a hash of the row's number, or of its value."""

from __future__ import annotations

import zlib

import numpy as np
from tests.mutants.harness import Mutants

from distcore_core.hooks import hookimpl
from distcore_data import Splitter
from distcore_data.encoding.splitter import coded
from distcore_testing import SplitterSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("splitters", SplitterSuite)


@MUTANTS.sound
class Sound(Splitter):
    """By a hash of the seed and the value."""

    def place_of(self, value):
        return zlib.crc32(f"{self.seed} {value}".encode()) / 2**32

    def assign(self, rows, carry=None):
        codes, values = coded(rows.columns[self.column])
        edges = np.cumsum(self.probabilities)[:2]
        places = [self.place_of(value) for value in values]
        return np.searchsorted(edges, places, side="right").astype(np.int8)[codes]


@MUTANTS.fault("test_it_travels_to_workers_and_other_hashes_change_nothing", quick=True)
class Hashing(Sound):
    """By Python's own hash, which each process has another of."""

    def place_of(self, value):
        return hash((self.seed, value)) % 10_000 / 10_000


@MUTANTS.fault("test_shards_do_not_count")
class Counting(Sound):
    """By the position in the shard."""

    def assign(self, rows, carry=None):
        return (np.arange(len(rows.numbers)) % 5 // 3).astype(np.int8)


@MUTANTS.fault("test_dictionaries_of_chunks_do_not_count")
class Coding(Sound):
    """By the code that a value has in its chunk's dictionary."""

    def assign(self, rows, carry=None):
        found = [
            self.place_of(code)
            for chunk in rows.columns[self.column].chunks
            for code in chunk.indices.to_pylist()
        ]
        edges = np.cumsum(self.probabilities)[:2]
        return np.searchsorted(edges, found, side="right").astype(np.int8)


@MUTANTS.fault("test_rows_that_are_left_out_change_no_other_row")
class Ranked(Sound):
    """By the place among the rows that are kept."""

    surveys = True

    def survey(self, rows):
        return len(rows.numbers)

    def carries(self, surveys):
        return [sum(surveys[:at]) for at in range(len(surveys))]

    def assign(self, rows, carry=None):
        places = [self.place_of(carry + at) for at in range(len(rows.numbers))]
        edges = np.cumsum(self.probabilities)[:2]
        return np.searchsorted(edges, places, side="right").astype(np.int8)


@MUTANTS.fault("test_the_seed_decides")
class Seedless(Sound):
    """The seed does not count."""

    def place_of(self, value):
        return zlib.crc32(f"{value}".encode()) / 2**32


@MUTANTS.fault("test_shares_are_about_those_that_were_asked_for")
class Swapped(Sound):
    """Validation gets the share of test."""

    def assign(self, rows, carry=None):
        return np.array([0, 2, 1], np.int8)[super().assign(rows, carry)]


@MUTANTS.fault("test_every_row_has_a_split")
class Wide(Sound):
    """Splits are not of the type that was asked for."""

    def assign(self, rows, carry=None):
        return super().assign(rows, carry).astype(np.int64)


@MUTANTS.fault("test_it_keeps_nothing_of_what_it_was_asked")
class Remembering(Sound):
    """Goes on counting from the shard that it was asked about before."""

    seen = 0

    def place_of(self, value):
        self.seen += 1
        return zlib.crc32(f"{self.seed} {self.seen // 700} {value}".encode()) / 2**32


@hookimpl
def distcore_make_member(kind, name, context):
    made = MUTANTS.named(name)
    return made and made(**context)
