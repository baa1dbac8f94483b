"""Text inputs: a vocabulary from the data, then each text as the codes of its tokens.

As in Ludwig the vocabulary begins with <EOS>, <SOS>, <PAD>, <UNK>, then come the tokens, most
frequent first (and by their bytes if equally frequent), and every text is framed by <SOS> and <EOS>
before it is cut. One difference: a missing text, filled with <UNK>, is the one token <UNK>; Ludwig
takes `<UNK>` apart like any text.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from distcore_core.contracts import JSON, Column
from distcore_core.registry.manager import environment_plugins
from distcore_data.arrow import flags, from_numpy, strings
from distcore_data.members import make_named
from distcore_tabular import tokenizers
from distcore_tabular.feature import TabularFeature
from distcore_tabular.member_network import EncoderNetwork
from distcore_tabular.options_text import START, STOP, UNKNOWN
from distcore_tabular.roles import TOKENIZER

STOP_CODE, START_CODE, PADDING_CODE, UNKNOWN_CODE = range(4)


class TextState(NamedTuple):
    """Mergeable statistics of some texts.

    counts: of tokens; longest: tokens of the longest text; rows, missing: how many texts, and how
        many of them missing;
    texts: counts of whole texts, if fill_with_mode needs them."""

    counts: tokenizers.Counts
    longest: int
    rows: int
    missing: int
    texts: tokenizers.Counts | None


class TokenizedFeature(TabularFeature):
    """What texts and sets have in common: counting tokens, and what stands in for a missing
    value."""

    raw: Literal["number", "category", "string"] = "string"

    def partial(self, values: pa.Array) -> TextState:
        """Counts of the tokens of some texts; missing ones are counted apart."""
        tokens = self.tokens(values)
        by_mode = self.options.preprocessing.missing_value_strategy == "fill_with_mode"
        return TextState(
            tokenizers.count(tokens),
            int(tokens.lengths.max(initial=0)),
            len(values),
            values.null_count,
            tokenizers.count(tokenizers.tokenize(values, tokenizers.untokenized))
            if by_mode
            else None,
        )

    def merge(self, left: TextState, right: TextState) -> TextState:
        texts = left.texts
        if texts is not None and right.texts is not None:
            texts = tokenizers.merge(texts, right.texts)
        return TextState(
            tokenizers.merge(left.counts, right.counts),
            max(left.longest, right.longest),
            left.rows + right.rows,
            left.missing + right.missing,
            texts,
        )

    def tokens(self, values: pa.Array) -> tokenizers.Tokens:
        section = self.options.preprocessing.tokenizer
        plugins = environment_plugins(self.block)
        tokenizer = make_named(plugins, TOKENIZER, self.tokenizer, section)
        return tokenizers.tokenize(values, tokenizer, self.options.preprocessing.lowercase)

    @property
    def tokenizer(self) -> str:
        """The name of the one that the options name."""
        section = self.options.preprocessing.tokenizer
        return section if isinstance(section, str) else str(section.type)

    @property
    def encoded_by(self) -> tuple[tuple[str, str], ...]:  # type: ignore[override]  # read-only here
        """The tokenizer."""
        return ((TOKENIZER.kind, self.tokenizer),)

    def filled(self, state: TextState, unknown: str) -> tuple[TextState, list[str]]:
        """The state with missing values counted as what stands in for them, and the tokens of that:
        [unknown] where that is the unknown symbol itself, or if neighbours or dropping leave
        nothing else."""
        if state.rows and not len(state.counts.tokens):
            raise self.nothing_in_it(
                "value"
                if state.missing == state.rows
                else "token (only what the tokenizer drops, such as white space)"
            )
        options = self.options.preprocessing
        fill = unknown
        if options.missing_value_strategy == "fill_with_const":
            fill = options.fill_value
        elif state.texts is not None:
            fill = next(iter(tokenizers.most_common(state.texts, 1)), unknown)
        if fill in (unknown, UNKNOWN):
            return state, [unknown]
        tokens = self.tokens(strings([fill]))
        if state.missing:
            once = tokenizers.count(tokens)
            added = tokenizers.Counts(once.tokens, once.counts * state.missing)
            longest = max(state.longest, len(tokens.places))
            state = state._replace(counts=tokenizers.merge(state.counts, added), longest=longest)
        return state, tokens.words.take(from_numpy(tokens.places)).to_pylist()

    def codes(
        self, values: pa.Array, metadata: JSON, unknown: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The codes of all tokens of some texts, int32, and how many each text has, int64;
        missing ones filled."""
        tokens = self.tokens(values)
        codes = tokenizers.codes_of(tokens, self.vocabulary(metadata), unknown)
        if values.null_count == 0:
            return codes, tokens.lengths
        missing = flags(values.is_null())
        fill = np.array(metadata["fill"], np.int32)
        lengths = np.where(missing, len(fill), tokens.lengths)
        is_fill = np.repeat(missing, lengths)
        out = np.empty(len(is_fill), np.int32)
        out[~is_fill] = codes
        out[is_fill] = np.tile(fill, values.null_count)
        return out, lengths

    def column(self, metadata: JSON) -> Column:
        return Column(name=self.name, dtype="int32", width=None)


class TextFeature(TokenizedFeature):
    """A text input. options: TextInput."""

    kind = "text"

    def finish(self, state: TextState) -> JSON:
        """{"idx2str": every word in the order of its code, "max_sequence_length", "fill": codes of
        a missing text, "padding", "rows", "missing"}. Raises DataError if no text has a token."""
        options = self.options.preprocessing
        state, fill = self.filled(state, options.unknown_symbol)
        special = [STOP, START, options.padding_symbol, options.unknown_symbol]
        vocabulary = special + tokenizers.most_common(state.counts, options.most_common, special)
        longest = state.longest + 2
        limit = options.max_sequence_length or longest
        place = {word: code for code, word in enumerate(vocabulary)}
        return {
            "idx2str": vocabulary,
            "max_sequence_length": options.sequence_length or min(longest, limit),
            "fill": [place.get(word, UNKNOWN_CODE) for word in fill],
            "padding": options.padding,
            "rows": state.rows,
            "missing": state.missing,
        }

    def encode(self, values: pa.Array, metadata: JSON) -> pa.Array:
        """Some texts as List<int32>: <SOS>, the codes of the tokens, <EOS>, cut at
        max_sequence_length."""
        codes, lengths = self.codes(values, metadata, UNKNOWN_CODE)
        lengths = lengths + 2
        ends = np.cumsum(lengths)
        starts = ends - lengths
        out = np.empty(len(codes) + 2 * len(lengths), np.int32)
        is_token = np.ones(len(out), bool)
        is_token[starts] = is_token[ends - 1] = False
        out[is_token], out[starts], out[ends - 1] = codes, START_CODE, STOP_CODE
        limit = metadata["max_sequence_length"]
        if lengths.max(initial=0) > limit:
            out = out[np.arange(len(out)) - np.repeat(starts, lengths) < limit]
            lengths = np.minimum(lengths, limit)
        return lists(out, lengths)

    def network(self) -> EncoderNetwork:
        return EncoderNetwork(self)


def lists(values: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """A List<int32> array of rows of the given lengths."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(from_numpy(offsets), from_numpy(values))
