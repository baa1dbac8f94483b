"""Feature `category`: one of many values, as a code in a vocabulary; as an output, a probability
for each class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcore_core.contracts import JSON, Column
from distcore_core.errors import ConfigError, ConfigIssue, DataError
from distcore_data.arrow import from_numpy, scalar, strings
from distcore_data.arrow_list import ArrowList
from distcore_tabular.columns import null_mask
from distcore_tabular.feature import METRICS, TabularFeature
from distcore_tabular.member_network import MemberNetwork
from distcore_tabular.options import UNKNOWN
from distcore_tabular.vocabulary import (
    NO_CLASS,
    Counts,
    Labels,
    all_blank,
    as_dictionary,
    clean,
    find,
    gather,
    one_spelling,
    ranked,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch


class CategoryFeature(TabularFeature):
    """The data half. Metadata: idx2str (the label of each code), counts (rows of each, after
    filling), vocab_size, unknown and missing (the codes of values never seen at fit time, and of
    missing ones); by_value, if several sets were counted by `one_spelling`.

    The most frequent value has the lowest code; equally frequent ones are in code point order.
    `<UNK>` is code 0: always for an input, and, as in Ludwig, for an output if `most_common` left
    values out or missing values became `<UNK>`. A target that is no class and has no `<UNK>` to go
    to is NO_CLASS.
    """

    kind = "category"
    raw: Literal["category"] = "category"
    _encoded: tuple[JSON, pa.Array, np.ndarray] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_encoded": None}  # a block's values need not travel

    def partial(self, values: pa.Array) -> Counts:
        """How often each value occurs in some rows."""
        return Counts.of(values, self.options.preprocessing.lowercase)

    def merge(self, left: Counts, right: Counts) -> Counts:
        return left.merge(right)

    def of_sets(self, state: Counts) -> Counts:
        """The counts where several sets were given: what they spell otherwise is one value."""
        return one_spelling(state)

    def finish(self, state: Counts) -> JSON:
        """The vocabulary. Raises DataError if there is nothing but white space, or an output has
        one class alone."""
        found, counts = state.ranked()
        if all_blank(found):
            raise self.nothing_in_it()
        found, counts, missing = self._filled(found, counts, state.missing)
        vocabulary, rows = self._select(found, counts)
        labels = ArrowList(vocabulary)  # there may be millions
        if self.role == "output" and len(labels) < 2:
            raise DataError(
                f"Column {self.name!r} has one class only, {labels[0]!r}, and an output needs two. "
                "Give data with more classes, or predict another column."
            )
        unknown = 0 if labels[0] == UNKNOWN else NO_CLASS
        place = -1 if missing is None else _place(vocabulary, missing)
        metadata: JSON = {
            "idx2str": labels,
            "counts": ArrowList(from_numpy(rows)),
            "vocab_size": len(labels),
            "unknown": unknown,
            "missing": unknown if place < 0 else place,
        }
        if state.by_value:
            metadata["by_value"] = True
        if self.role == "output":
            given = getattr(self.options.loss, "class_weights", None)
            metadata["class_weights"] = class_weights(self.name, given, labels, metadata["counts"])
        # Of a million labels the threads that encode would all make it anew, of the list.
        self._vocabulary = (metadata, Labels(vocabulary))
        return metadata

    def column(self, metadata: JSON) -> Column:
        return Column(name=self.name, dtype="int32")

    def encode(self, values: pa.Array, metadata: JSON) -> pa.Array:
        """Codes: int32 [n]."""
        values = as_dictionary(values)
        return gather(values, self._codes(values.dictionary, metadata))

    def decode(self, codes: np.ndarray, metadata: JSON) -> pa.Array:
        """The label of each code: utf8 [n]."""
        return self.vocabulary(metadata).labels.take(from_numpy(np.asarray(codes)))

    def network(self) -> CategoryNetwork:
        return CategoryNetwork(self)

    def _codes(self, values: pa.Array, metadata: JSON) -> np.ndarray:
        """The code of each value of a dictionary, and last that of a missing row: int32 [n + 1].
        Kept for the next rows: all shards of a block have its dictionary. Threads that come at
        once each look it up."""
        kept = self._encoded
        if kept is None or kept[0] is not metadata or not kept[1].equals(values):
            values = pa.concat_arrays([values])  # a copy: whoever owns them may write others there
            labels = clean(values, self.options.preprocessing.lowercase)
            unknown, limit = metadata["unknown"], self.options.preprocessing.most_common
            most = limit is not None and metadata["vocab_size"] > limit
            cut = most and unknown != NO_CLASS and metadata["counts"][0] > 0
            by_value = "by_value" in metadata  # a value was cut in all of its spellings or in none
            codes = find(labels, self.vocabulary(metadata), unknown, cut and not by_value)
            null = null_mask(labels)
            if null is not None:
                codes[null] = metadata["missing"]
            codes = np.append(codes, np.int32(metadata["missing"]))
            kept = self._encoded = (metadata, values, codes)
        return kept[2]

    def _filled(
        self, labels: pa.Array, counts: np.ndarray, missing: int
    ) -> tuple[pa.Array, np.ndarray, str | None]:
        """Ranked labels and counts with missing rows counted as what they are filled with, and that
        label."""
        label, preprocessing = None, self.options.preprocessing
        if self.missing == "fill_with_const":
            label = preprocessing.fill_value
            if label != UNKNOWN:
                label = clean(strings([label]), preprocessing.lowercase)[0].as_py()
        elif self.missing == "fill_with_mode":
            label = labels[0].as_py()
        if label is not None and missing:
            place = _place(labels, label)
            if place < 0:
                labels = pa.concat_arrays([labels, strings([label])])
                counts = np.append(counts, 0)
            counts = counts.copy()
            counts[place] += missing
            labels, counts = ranked(labels, counts)
        return labels, counts, label

    def _select(self, labels: pa.Array, counts: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """Labels by code and their counts: at most `most_common` of the ranked ones, and `<UNK>`
        before them if there is to be one."""
        place, unknown = _place(labels, UNKNOWN), 0
        if place >= 0:
            unknown = int(counts[place])
            others = np.flatnonzero(np.arange(len(labels)) != place)
            labels, counts = labels.take(from_numpy(others)), counts[others]
        limit = self.options.preprocessing.most_common
        most = len(labels) if limit is None else min(limit, len(labels))
        kept, rows = labels[:most], counts[:most]
        if self.role == "input" or place >= 0 or most < len(labels):
            unseen = unknown + int(counts[most:].sum())
            rows = np.concatenate([np.array([unseen]), rows])
            return pa.concat_arrays([strings([UNKNOWN]), kept]), rows
        return kept, rows


def _place(labels: pa.Array, label: str) -> int:
    """Where a label stands, or -1."""
    return int(pc.index(labels, scalar(label)).as_py())


def class_weights(
    name: str, weights: Any, labels: Sequence[str], counts: Sequence[int]
) -> list[float] | None:
    """The weight of each class, scaled so that the mean over the rows the vocabulary was made of is
    1.

    torch divides a batch's weighted loss by the batch's weights; with the mean weight of all rows
    instead, a row's loss does not depend on its batch. Raises ConfigError if the weights do not fit
    the classes.
    """
    if not weights:
        return None
    where = f"{name}.loss.class_weights"
    shown = ", ".join(map(repr, labels[:20])) + (", …" if len(labels) > 20 else "")
    if isinstance(weights, dict):
        if set(weights) != set(labels):
            missing = [label for label in labels if label not in weights][:5]
            foreign = [label for label in weights if label not in labels][:5]
            said = [f"has none for {missing}"] * bool(missing) + [
                f"names {foreign}, which is no class"
            ] * bool(foreign)
            raise ConfigError(
                [ConfigIssue(0, where, f"{' and '.join(said)}; give a weight for each of {shown}")]
            )
        weights = [weights[label] for label in labels]
    if len(weights) != len(labels):
        message = (
            f"has {len(weights)} weights for {len(labels)} classes; give one for each of {shown}, "
            "in this order"
        )
        raise ConfigError([ConfigIssue(0, where, message)])
    mean = sum(weight * count for weight, count in zip(weights, counts, strict=True)) / max(
        1, sum(counts)
    )
    if mean <= 0:
        raise ConfigError(
            [
                ConfigIssue(
                    0, where, "gives no row any weight; give a class that occurs a positive weight"
                )
            ]
        )
    return [weight / mean for weight in weights]


class CategoryNetwork(MemberNetwork):
    """The half that needs torch."""

    def metrics(self, metadata: JSON) -> Mapping[str, Any]:
        """accuracy (mean over classes, as in Ludwig), accuracy_micro, hits_at_k, roc_auc (one
        against the rest) and loss."""

        def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return self.loss(output.clamp_min(1e-30).log(), target, metadata)

        few = metadata["vocab_size"] <= self.feature.options.top_k
        names = [name for name in METRICS["category"] if name != "hits_at_k" or not few]
        return self.feature.metrics(names, metadata, loss)

    def output(self, logits: torch.Tensor, metadata: JSON) -> torch.Tensor:
        """The probability of each class: [B, classes]."""
        return logits.float().softmax(-1)

    def predictions(self, output: np.ndarray, metadata: JSON) -> pa.RecordBatch:
        """The likeliest class, the probability of every class, and that of the likeliest."""
        name = self.feature.name
        columns = {f"{name}_predictions": self.feature.decode(output.argmax(1), metadata)}
        for code, label in enumerate(metadata["idx2str"]):
            columns[f"{name}_probabilities_{label}"] = from_numpy(output[:, code])
        columns[f"{name}_probability"] = from_numpy(output.max(1))
        return pa.record_batch(columns)
