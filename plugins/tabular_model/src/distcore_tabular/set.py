"""Set inputs: the members a text names, whatever their order and number.

The vocabulary begins with <UNK>, then come the members, most frequent first (and by their bytes if
equally frequent). A row is the sorted codes of its distinct members. Ludwig weighs each member's
vector by its code; here every member counts once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from distcore_core.contracts import JSON
from distcore_tabular import tokenizers
from distcore_tabular.options_text import UNKNOWN
from distcore_tabular.text import EncoderNetwork, TextState, TokenizedFeature, lists

if TYPE_CHECKING:
    pass

UNKNOWN_CODE = 0


class SetFeature(TokenizedFeature):
    """A set input. options: SetInput."""

    kind = "set"

    def finish(self, state: TextState) -> JSON:
        """{"idx2str": every member in the order of its code, "max_set_size": tokens of the longest
        text, "fill": codes of a missing set, "rows", "missing"}. Raises DataError if every set
        is missing."""
        state, fill = self.filled(state, UNKNOWN)
        members = tokenizers.most_common(state.counts, self.options.preprocessing.most_common)
        vocabulary = [UNKNOWN, *(member for member in members if member != UNKNOWN)]
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
        size = len(metadata["idx2str"])
        members = np.unique(np.repeat(np.arange(len(lengths)), lengths) * size + codes)
        return lists(
            (members % size).astype(np.int32), np.bincount(members // size, minlength=len(lengths))
        )

    def network(self) -> EncoderNetwork:
        return EncoderNetwork(self)
