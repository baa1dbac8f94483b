"""Tokenizers with a fault each: words between spaces."""

from __future__ import annotations

import pyarrow as pa
from tests.mutants.harness import Mutants

from distcore_core.hooks import hookimpl
from distcore_testing import TokenizerSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("tabular.tokenizers", TokenizerSuite)
WORDS = pa.list_(pa.large_string())


@MUTANTS.sound
class Words:
    """Split in Python."""

    def __call__(self, texts):
        return pa.array([self.of(text) for text in texts.to_pylist()], WORDS)

    def of(self, text):
        return text.split()


@MUTANTS.fault("test_every_text_has_its_tokens", quick=True)
class Skipping(Words):
    """A text without words has no row."""

    def __call__(self, texts):
        return pa.array([self.of(text) for text in texts.to_pylist() if self.of(text)], WORDS)


@MUTANTS.fault("test_every_text_has_its_tokens")
class Nulls(Words):
    """A text without words has a null."""

    def __call__(self, texts):
        return pa.array([self.of(text) or None for text in texts.to_pylist()], WORDS)


@MUTANTS.fault("test_the_tokens_of_a_text_depend_on_that_text_alone")
class Frequent(Words):
    """Words that only one text of the batch has are left out."""

    def __call__(self, texts):
        rows = [self.of(text) for text in texts.to_pylist()]
        count = [word for row in rows for word in set(row)]
        kept = [[word for word in row if len(rows) == 1 or count.count(word) > 1] for row in rows]
        return pa.array(kept, WORDS)


@MUTANTS.fault("test_the_tokens_of_a_text_depend_on_that_text_alone")
class Unsliced(Words):
    """Reads the whole buffer of a slice."""

    def __call__(self, texts):
        data = texts.buffers()[2].to_pybytes() if texts.buffers()[2] else b""
        ends = [len(text.encode()) for text in texts.to_pylist()]
        rows, start = [], 0
        for length in ends:
            rows.append(data[start : start + length].decode("utf-8", "replace").split())
            start += length
        return pa.array(rows, WORDS)


@MUTANTS.fault("test_another_process_finds_the_same")
class Hashed(Words):
    """Words stand in the order of their hashes."""

    def of(self, text):
        return [str(hash(word) % 1000) for word in text.split()]


@hookimpl
def distcore_make_member(kind, name):
    made = MUTANTS.named(name)
    return made and made()
