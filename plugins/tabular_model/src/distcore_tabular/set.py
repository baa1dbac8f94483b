"""Set inputs: the members a text names, whatever their order and number.

The vocabulary begins with <UNK>, then come the members, most frequent first (and by their bytes if
equally frequent). A row is the sorted codes of its distinct members. Ludwig weighs each member's
vector by its code; here every member counts once.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from distcore_core.contracts import JSON
from distcore_tabular import tokenizers
from distcore_tabular.member_network import EncoderNetwork
from distcore_tabular.options_text import UNKNOWN
from distcore_tabular.text import TextState, TokenizedFeature, lists

UNKNOWN_CODE = 0


class SetFeature(TokenizedFeature):
    """A set input. options: SetInput."""

    kind = "set"

    def finish(self, state: TextState) -> JSON:
        """{"idx2str": every member in the order of its code, "max_set_size": tokens of the longest
        text, "fill": codes of a missing set, "rows", "missing"}. Raises DataError if no set
        has a member."""
        state, fill = self.filled(state, UNKNOWN)
        limit = self.options.preprocessing.most_common
        vocabulary = [UNKNOWN, *tokenizers.most_common(state.counts, limit, [UNKNOWN])]
        place = {member: code for code, member in enumerate(vocabulary)}
        return {
            "idx2str": vocabulary,
            "max_set_size": state.longest,
            "fill": sorted({place.get(member, UNKNOWN_CODE) for member in fill}),
            "rows": state.rows,
            "missing": state.missing,
        }

    def encode(self, values: pa.Array, metadata: JSON) -> pa.Array:
        """Some sets as List<int32>: sorted distinct codes."""
        codes, lengths = self.codes(values, metadata, UNKNOWN_CODE)
        return lists(*distinct(codes, lengths, len(metadata["idx2str"])))

    def network(self) -> EncoderNetwork:
        return EncoderNetwork(self)


def distinct(codes: np.ndarray, lengths: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """(the sorted distinct codes of each of n rows, one row behind another, int32; how many each
    has, int64 [n]).

    Args:
        codes: Of all rows, int32, each below `size`.
        lengths: Codes of each row, int64 [n].
    """
    # Row and code in one number: sorting takes a tenth of what np.unique's hash table does, and
    # numbers of half the width half of that.
    wide = "i4" if len(lengths) * size <= np.iinfo(np.int32).max else "i8"
    keys = np.repeat(np.arange(len(lengths), dtype=wide) * size, lengths) + codes
    keys.sort()
    first = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    keys = keys[first]
    rows = keys // size
    members = keys - rows * size
    return members.astype(np.int32, copy=False), np.bincount(rows, minlength=len(lengths))
