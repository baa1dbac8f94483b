"""What every tokenizer of the tabular model must hold: the tokens of a text by that text alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pyarrow as pa

from distcore_testing.elsewhere import said_elsewhere
from distcore_testing.member_values import member

TEXTS = (
    *("Sun moon", "", "  ", "sun, moon;sun", "Über café ß", "😀 日本語"),
    *("a" * 3000, "x_y-z 1.5", "\t"),
)
CHILD = """
import json, sys
from distcore_testing.tokenizers import TokenizerSuite
name, options, texts = json.load(sys.stdin)
suite = TokenizerSuite()
suite.name, suite.options = name, options
print("FOUND" + json.dumps(suite.rows(texts)))
"""


class TokenizerSuite:
    """Subclass with `name`, and `options` if needed."""

    name: str
    options: Mapping[str, Any] = {}

    def rows(self, texts: Any) -> list[list[str]]:
        """The tokens of each text."""
        made = member("tabular.tokenizers", self.name, self.options)
        values = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.large_string())
        found = made(values)
        if isinstance(found, pa.Array):
            assert len(found) == len(values), "it does not give a row for each text"
            assert found.null_count == 0
            return [list(row) for row in found.to_pylist()]
        words, places = found.words.to_pylist(), found.places.tolist()
        assert len(found.offsets) == len(values) + 1, "it does not give a row for each text"
        return [[words[each] for each in places[a:b]] for a, b in pairwise(found.offsets.tolist())]

    def test_every_text_has_its_tokens(self) -> None:
        found = self.rows(list(TEXTS))
        assert all(isinstance(token, str) for row in found for token in row)
        assert any(found)

    def test_the_tokens_of_a_text_depend_on_that_text_alone(self) -> None:
        """Whatever lies beside it, wherever it lies, and if there is none."""
        whole = self.rows(list(TEXTS))
        assert [self.rows([text])[0] for text in TEXTS] == whole
        assert self.rows(list(TEXTS[::-1])) == whole[::-1]
        array = pa.array(["before", *TEXTS, "after"], pa.large_string())
        assert self.rows(array.slice(1, len(TEXTS))) == whole, "slices of an array are read wrongly"
        assert self.rows([]) == []

    def test_another_process_finds_the_same(self) -> None:
        """With another PYTHONHASHSEED: codes of a cache are compared with those of another day."""
        given = json.dumps([self.name, dict(self.options), list(TEXTS)])
        said = said_elsewhere(CHILD, given=given)
        assert json.loads(said.partition("FOUND")[2]) == self.rows(list(TEXTS))
