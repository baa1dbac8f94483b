"""Feature `binary`: one of two values, as 0 or 1; as an output, the probability of the true one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from distcore_core.contracts import JSON, Column
from distcore_core.errors import DataError
from distcore_data.arrow import from_numpy, plain, strings, truths
from distcore_tabular.feature import METRICS, TabularFeature
from distcore_tabular.member_network import MemberNetwork
from distcore_tabular.vocabulary import Counts, all_blank, as_dictionary, clean, gather

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

TRUE_WORDS = frozenset({"yes", "y", "true", "t", "1", "1.0"})
FALSE_WORDS = frozenset({"no", "n", "false", "f", "0", "0.0", "-1", "-1.0"})


class BinaryFeature(TabularFeature):
    """The data half. Metadata: kind, bool2str (the label of false and of true), str2bool (each
    spelling seen: 0 or 1), counts (rows that are false and true, after filling), fill (what a
    missing value becomes).

    kind says how values are read, by Ludwig's order:
    - "number": all are numbers; 1 is true if they are 0 and 1, else fallback_true_label, or what is
      not 0, or the larger one. Labels are False and True.
    - "bool": all are true or false, in any case. Labels are False and True.
    - "word": all are words such as yes, n, T, 0, in any case. A label is its most frequent
      spelling.
    - "label": two strings; true is fallback_true_label, or the one of them that is such a word
      says, or the first in code point order, as in Ludwig.
    """

    kind = "binary"
    raw: Literal["category"] = "category"

    def partial(self, values: pa.Array) -> Counts:
        """How often each spelling occurs in some rows."""
        return Counts.of(values)

    def merge(self, left: Counts, right: Counts) -> Counts:
        return left.merge(right)

    def finish(self, state: Counts) -> JSON:
        """Raises DataError if there is nothing but white space, more than two values, or an output
        has one class alone once missing values are filled."""
        ranked, rows = state.ranked()
        if len(ranked) > 1000:
            raise self._too_many(ranked.slice(0, 3).to_pylist(), len(ranked))
        if all_blank(ranked):
            raise self.nothing_in_it()
        found = dict(zip(ranked.to_pylist(), rows.tolist(), strict=True))
        kind = kind_of(found)
        str2bool = self._meaning(found, kind)
        labels = _labels(found, kind, str2bool)
        counts = [
            sum(each for label, each in found.items() if str2bool[label] == code) for code in (0, 1)
        ]
        seen = {canonical(label, kind): code for label, code in str2bool.items()}
        metadata: JSON = {"kind": kind, "bool2str": labels, "str2bool": dict(sorted(seen.items()))}
        fill = self._fill(metadata, counts)
        if self.missing.startswith("fill_with"):
            counts[fill] += state.missing
        if self.role == "output" and 0 in counts:
            raise DataError(
                f"Column {self.name!r} has one class only, {next(iter(found))!r}, and an output "
                "needs two. Give data with both classes, or predict another column."
            )
        return {**metadata, "counts": counts, "fill": fill}

    def column(self, metadata: JSON) -> Column:
        return Column(name=self.name, dtype="float32")

    def encode(self, values: pa.Array, metadata: JSON) -> pa.Array:
        """0 or 1: float32 [n]. Raises DataError for a value that means neither: filled like a
        missing one, the model would answer as if the row had said false."""
        values = as_dictionary(values)
        labels = clean(values.dictionary).to_pylist()
        meanings = [None if label is None else meaning(label, metadata) for label in labels]
        self._refuse_others(values, meanings, labels, metadata)
        table = [metadata["fill"] if code is None else code for code in meanings]
        return gather(values, np.array([*table, metadata["fill"]], np.float32))

    def decode(self, codes: np.ndarray, metadata: JSON) -> pa.Array:
        """Booleans [n], or the labels if values are not numbers or booleans."""
        truth = np.asarray(codes) > 0.5
        if metadata["kind"] in ("number", "bool"):
            return truths(truth)
        return strings(metadata["bool2str"]).take(from_numpy(truth.astype(np.int8)))

    def network(self) -> BinaryNetwork:
        return BinaryNetwork(self)

    def _meaning(self, found: Mapping[str, int], kind: str) -> dict[str, int]:
        """Each spelling: 0 or 1."""
        fallback = self.options.preprocessing.fallback_true_label
        if kind == "bool":
            return {label: int(label.lower() == "true") for label in found}
        if kind == "word":
            return {label: int(label.lower() in TRUE_WORDS) for label in found}
        if kind == "number":
            numbers = sorted({float(label) for label in found})
            if len(numbers) > 2:
                raise self._too_many(list(found)[:3], len(numbers))
            true_number = _true_number(numbers, fallback)
            if true_number is None:
                shown = dict.fromkeys(canonical(label, kind) for label in sorted(found, key=float))
                raise self._no_true_label(list(shown))
            return {label: int(float(label) == true_number) for label in found}
        words = sorted(found)
        if len(words) > 2:
            raise self._too_many(list(found)[:3], len(words))
        true = _true_label(words, fallback)
        if true is None:
            raise self._no_true_label(words)
        return {label: int(label == true) for label in found}

    def _no_true_label(self, values: list[str]) -> DataError:
        fallback = self.options.preprocessing.fallback_true_label
        return DataError(
            f"Column {self.name!r} holds {' and '.join(map(repr, values))}, and "
            f"fallback_true_label is {fallback!r}. Set preprocessing.fallback_true_label to the "
            "one that is true."
        )

    def _too_many(self, some: list[str], count: int) -> DataError:
        return DataError(
            f"Column {self.name!r} holds {count} different values, such as "
            f"{', '.join(map(repr, some))}, and a binary feature takes two. Declare the column "
            "category or number, or correct the values."
        )

    def _fill(self, metadata: JSON, counts: list[int]) -> int:
        """What a missing value becomes: 0 or 1."""
        if self.missing == "fill_with_mode":
            return int(counts[1] > counts[0])
        if self.missing == "fill_with_const":
            constant = self.options.preprocessing.fill_value
            code = meaning(str(constant), metadata)
            if code is None and type(constant) in (int, float):  # 7 and 7.0 are one
                seen = metadata["str2bool"].items()
                code = next((each for label, each in seen if _number(label) == constant), None)
            if code is None:
                raise DataError(
                    f"Column {self.name!r} holds {' and '.join(map(repr, metadata['str2bool']))}, "
                    f"and preprocessing.fill_value is {constant!r}, which is neither. Set it to "
                    "one of them."
                )
            return code
        return int(self.missing == "fill_with_true")

    def _refuse_others(
        self,
        values: pa.DictionaryArray,
        meanings: list[int | None],
        labels: list[str | None],
        metadata: JSON,
    ) -> None:
        """Raise DataError for the first row whose value means neither (a dictionary may hold
        values of no row)."""
        strange = [
            code is None and label is not None for code, label in zip(meanings, labels, strict=True)
        ]
        if not any(strange):
            return
        rows = np.flatnonzero(plain(gather(values, np.array([*strange, False], np.int8))))
        if len(rows):
            known = " and ".join(map(repr, metadata["bool2str"]))
            raise DataError(
                f"Column {self.name!r}: {labels[values.indices[int(rows[0])].as_py()]!r} is "
                f"neither of the two values that the model knows, {known}. Correct the value, or "
                "leave it empty."
            )


def kind_of(labels: Mapping[str, int]) -> str:
    """How the values are read: "number", "bool", "word" or "label"."""
    if all(_number(label) is not None for label in labels):
        return "number"
    lower = {label.lower() for label in labels}
    if lower <= {"true", "false"}:
        return "bool"
    return "word" if lower <= TRUE_WORDS | FALSE_WORDS else "label"


def canonical(label: str, kind: str) -> str:
    """How metadata spells a value: a number or a boolean is spelt alike from every file format."""
    if kind == "bool":
        return label.capitalize()
    number = _number(label) if kind == "number" else None
    if number is None:
        return label
    return str(int(number)) if number.is_integer() else repr(number)


def meaning(label: str, metadata: JSON) -> int | None:
    """0 or 1, or None for a value that was not seen at fit time and means neither."""
    code = metadata["str2bool"].get(label)
    if code is not None:
        return int(code)
    number, seen = _number(label), metadata["str2bool"]
    if metadata["kind"] == "number" and number is not None:
        same = [code for other, code in seen.items() if float(other) == number]
        if same:
            return int(same[0])
        if not {float(other) for other in seen} <= {0.0, 1.0}:
            return None
    lower = label.lower()
    if metadata["kind"] == "label" or lower not in TRUE_WORDS | FALSE_WORDS:
        return None
    return int(lower in TRUE_WORDS)


def _number(label: str) -> float | None:
    try:
        return float(label)
    except ValueError:
        return None


def _true_number(values: list[float], fallback: str | None) -> float | None:
    """Which of one or two numbers is true; None if fallback_true_label is neither."""
    if set(values) <= {0.0, 1.0}:
        return 1.0
    if fallback is not None:
        number = _number(fallback)
        return number if number in values or len(values) == 1 else None
    return max(values) if 0.0 not in values else next(value for value in values if value != 0.0)


def _true_label(values: list[str], fallback: str | None) -> str | None:
    """Which of one or two strings is true; None if fallback_true_label is neither."""
    if fallback is not None:
        return fallback if fallback in values or len(values) == 1 else None
    for value in values:
        if value.lower() in TRUE_WORDS:
            return value
    return next(value for value in values if value.lower() not in FALSE_WORDS)


def _labels(found: Mapping[str, int], kind: str, str2bool: Mapping[str, int]) -> list[str]:
    """What false and true are called. found: spellings, the most frequent first."""
    labels = ["False", "True"]
    if kind in ("word", "label"):
        for code in (0, 1):
            labels[code] = next((label for label in found if str2bool[label] == code), labels[code])
    return labels


class BinaryNetwork(MemberNetwork):
    """The half that needs torch."""

    def metrics(self, metadata: JSON) -> Mapping[str, Any]:
        """accuracy, precision, recall, specificity (all at the threshold), roc_auc, loss."""

        def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return self.loss(output.double().logit(1e-12), target, metadata)

        return self.feature.metrics(METRICS["binary"], metadata, loss)

    def output(self, logits: torch.Tensor, metadata: JSON) -> torch.Tensor:
        """The probability of true: [B]."""
        return logits.float().sigmoid()

    def predictions(self, output: np.ndarray, metadata: JSON) -> pa.RecordBatch:
        """Predicted value, probability of false and of true, and the probability of the
        predicted one."""
        name = self.feature.name
        false, true = metadata["bool2str"]
        truth = output >= self.feature.options.threshold
        return pa.record_batch(
            {
                f"{name}_predictions": self.feature.decode(truth, metadata),
                f"{name}_probabilities_{false}": from_numpy(1 - output),
                f"{name}_probabilities_{true}": from_numpy(output),
                f"{name}_probability": from_numpy(np.where(truth, output, 1 - output)),
            }
        )
