"""Text to tokens and tokens to codes, whole columns at a time: Ludwig's tokenizers in Arrow's
string kernels.

Where Arrow and Python differ:
- Character classes are Python's: letters, numbers and `_` make words in every script, and a space
  is what str.isspace says; they are spelt out for RE2, whose own \\w and \\s know ASCII alone.
- Lower case goes code point by code point: one that Python lowers into two (`İ`) or by its place in
  the word (the final `Σ`) is lowered into one here.
- Empty tokens (`a,,b`) are dropped; Ludwig's comma and underscore tokenizers keep them as a word of
  no letters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from string import ascii_letters, digits
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcore_core.errors import PluginBroken
from distcore_data.arrow import flags, from_numpy, to_numpy
from distcore_data.encoding.texts import (
    Tokens,
    Vocabulary,
    dictionary_encode,
    split,
    split_lists,
    tally,
    tokens_of,
)

SPACE = r"\p{Z}\x09-\x0d\x1c-\x1f\x{85}"
"""Inside of an RE2 class: what Python's str.isspace calls a space (bidirectional WS, B, S, and
category Z)."""
WORD = r"\p{L}\p{N}_"
"""Inside of an RE2 class: what makes a word, as str.isalnum and `_`."""
_WORD_BYTES = np.isin(np.arange(256), list(f"{ascii_letters}{digits}_".encode()))
"""Bytes that are characters of such words by themselves."""


def tokenize(
    texts: pa.Array, tokenizer: Callable[[pa.Array], Tokens | pa.Array], lowercase: bool = False
) -> Tokens:
    """The tokens of each text; a missing text has none. tokenizer: as `roles.TOKENIZER`."""
    present = texts.drop_null().cast(pa.large_string())
    found = tokenizer(pc.utf8_lower(present) if lowercase else present)
    tokens = found if isinstance(found, Tokens) else split_lists(_checked(found, len(present)))
    if len(present) == len(texts):
        return tokens
    lengths = np.zeros(len(texts), np.int64)
    lengths[flags(texts.is_valid())] = tokens.lengths
    return Tokens(tokens.words, tokens.places, np.concatenate([[0], np.cumsum(lengths)]))


def _space(texts: pa.Array) -> Tokens:
    """Between blanks; other white space only matters at the ends."""
    return split(pc.utf8_trim_whitespace(texts), " ")


def _space_punct(texts: pa.Array) -> Tokens:
    """Words, and every other character that is no space by itself.

    What lies between blanks repeats a lot: it is taken apart once, and put in place wherever it
    occurs."""
    chunks = split(texts, " ")
    if _of_word_bytes(chunks.words):
        return chunks  # as it would come out; looking at each word takes as long as the rest
    apart = pc.replace_substring_regex(chunks.words, rf"([^{WORD}{SPACE}])", r" \1 ")
    inside = split_lists(pc.split_pattern_regex(apart, f"[{SPACE}]+"))
    if (
        len(inside.places) == len(chunks.words) == inside.offsets[-1]
        and (inside.lengths == 1).all()
    ):
        return Tokens(inside.words, inside.places[chunks.places], chunks.offsets)
    lengths = inside.lengths[chunks.places]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    steps = np.arange(ends[-1]) - np.repeat(ends[:-1], lengths)
    places = inside.places[np.repeat(inside.offsets[chunks.places], lengths) + steps]
    return Tokens(inside.words, places, ends[chunks.offsets])


def _of_word_bytes(words: pa.Array) -> bool:
    """Whether the words have nothing but ASCII's letters, digits and `_`."""
    _, offsets, data = words.buffers()
    if not len(words) or data is None:
        return True
    ends = np.frombuffer(offsets, np.int64, len(words) + 1, words.offset * 8)
    return bool(_WORD_BYTES[np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]].all())


def _between(separator: str, texts: pa.Array) -> Tokens:
    """What lies between separators, without the white space around them."""
    pattern = f"[{SPACE}]*{separator}[{SPACE}]*"
    return split_lists(pc.split_pattern_regex(pc.utf8_trim_whitespace(texts), pattern))


def _characters(texts: pa.Array) -> Tokens:
    """Every code point. A UTF-8 byte starts one unless its two high bits are 10; the bytes are
    shared, not copied."""
    texts = pa.concat_arrays([texts])
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets = (
        np.frombuffer(offsets_buffer, np.int64, len(texts) + 1, texts.offset * 8)
        if len(texts)
        else np.zeros(1)
    )
    first, last = int(offsets[0]), int(offsets[-1])
    data = (
        np.frombuffer(data_buffer, np.uint8, last - first, first)
        if last > first
        else np.empty(0, np.uint8)
    )
    starts = np.flatnonzero((data & 0xC0) != 0x80)
    bounds = np.append(starts, last - first) + first
    characters = pa.LargeStringArray.from_buffers(len(starts), pa.py_buffer(bounds), data_buffer)
    return tokens_of(characters, np.searchsorted(starts, offsets - first))


def untokenized(texts: pa.Array) -> Tokens:
    """Each text as the one token that it is."""
    return tokens_of(texts, np.arange(len(texts) + 1))


def _stripped(texts: pa.Array) -> Tokens:
    return untokenized(pc.utf8_trim_whitespace(texts))


TOKENIZERS: dict[str, Callable[[pa.Array], Tokens]] = {
    "space": _space,
    "space_punct": _space_punct,
    "characters": _characters,
    "underscore": partial(_between, "_"),
    "comma": partial(_between, ","),
    "untokenized": untokenized,
    "stripped": _stripped,
}
"""What is carried out of Ludwig's tokenizers, by Ludwig's names."""


def _checked(lists: object, texts: int) -> pa.Array:
    """What a tokenizer from outside gave, as lists of large strings without nulls."""
    lists = pa.concat_arrays(lists.chunks) if isinstance(lists, pa.ChunkedArray) else lists
    if not isinstance(lists, pa.Array) or not (
        pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)
    ):
        given = lists.type if isinstance(lists, pa.Array) else type(lists).__name__
        raise PluginBroken(
            f"A tokenizer gave {given} for texts; it should give a list array of strings, a row "
            "for each text. Report this to its authors."
        )
    if len(lists) != texts or lists.null_count or lists.flatten().null_count:
        raise PluginBroken(
            f"A tokenizer gave {len(lists)} rows for {texts} texts, or nulls among them; it should "
            "give each text a list of strings. Report this to its authors."
        )
    return lists.cast(pa.large_list(pa.large_string()))


class Counts(NamedTuple):
    """How often each token occurs. tokens: distinct large strings, sorted by their bytes; counts:
    int64.

    The same tokens give the same Counts, whatever was counted and merged in which order."""

    tokens: pa.Array
    counts: np.ndarray


def count(tokens: Tokens) -> Counts:
    """Count the tokens of some texts."""
    return _sorted(tokens.words, tally(tokens.places, len(tokens.words)))


def merge(left: Counts, right: Counts) -> Counts:
    """The counts of both."""
    tokens = dictionary_encode(pa.concat_arrays([left.tokens, right.tokens]))
    # Each half holds a token once, so that adding the right half's counts meets no place twice.
    places = to_numpy(tokens.indices)
    counts = np.zeros(len(tokens.dictionary), np.int64)
    counts[places[: len(left.counts)]] = left.counts
    counts[places[len(left.counts) :]] += right.counts
    return _sorted(tokens.dictionary, counts)


def _sorted(tokens: pa.Array, counts: np.ndarray) -> Counts:
    order = pc.array_sort_indices(tokens)
    return Counts(tokens.take(order), counts[to_numpy(order)])


def most_common(counted: Counts, limit: int | None, but: Sequence[str] = ()) -> list[str]:
    """Tokens by (most often first, then the token's bytes), at most `limit`. but: those that have
    codes already."""
    most = None if limit is None else limit + len(but)
    order = np.argsort(-counted.counts, kind="stable")[:most]
    found: list[str] = counted.tokens.take(from_numpy(order)).to_pylist()
    return [token for token in found if token not in but][:limit]


def codes_of(tokens: Tokens, vocabulary: Vocabulary, unknown: int) -> np.ndarray:
    """The place of each token in the vocabulary, int32; `unknown` for one that is not in it."""
    return vocabulary.positions(tokens.words, unknown)[tokens.places]
