"""What a search aims at: the value of a round, of a trial, and which of two is better."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from distcore_core.contracts import JSON

if TYPE_CHECKING:
    from distcore_search.options import Hyperopt

NAMES = {"train": "training"}
"""Ludwig's other word for a split."""


@dataclass(frozen=True)
class Objective:
    """metric of feature ("combined": the loss of all) on split ("training", "validation", "test").

    The test split is evaluated once, with the kept weights; until then the validation split
    speaks for it."""

    feature: str
    metric: str
    goal: Literal["minimize", "maximize"]
    split: str = "validation"
    evaluated: str = "validation"

    @classmethod
    def of(cls, options: Hyperopt) -> Objective:
        split, evaluated = (NAMES.get(each, each) for each in (options.split, options.eval_split))
        return cls(options.output_feature, options.metric, options.goal, split, evaluated)

    def __str__(self) -> str:
        return f"{self.split} {self.metric} of {self.feature}"

    @property
    def told(self) -> str:
        """The split that rounds tell of it."""
        return "validation" if self.split == "test" else self.split

    def agrees(self, field: str | None, metric: str | None) -> bool:
        """Whether what a config says of `validation_field` and `validation_metric` leaves room for
        this."""
        return field in (None, self.feature) and metric in (None, self.metric)

    def of_round(self, metrics: Mapping[str, Any]) -> float | None:
        """The value of a round's {split: {feature: {metric: value}}}; None if it has no finite
        one."""
        return finite(metrics.get(self.told, {}).get(self.feature, {}).get(self.metric))

    def of_statistics(
        self, statistics: JSON, last: bool = False
    ) -> tuple[float | None, int | None]:
        """`best_of` the values of {split: {feature: {metric: [a value a round]}}}."""
        values = statistics.get(self.told, {}).get(self.feature, {}).get(self.metric, [])
        return self.best_of(values, last)

    def best_of(self, values: Sequence[Any], last: bool = False) -> tuple[float | None, int | None]:
        """The best finite value, the first of equals, and its position; None if there is none. Of
        the training split the last value, if it is finite: no round is kept for being the best
        there. last: whether the last value, if it is one of the best, is the one among them."""
        if self.split == "training":
            value = finite(values[-1]) if values else None
            return value, None if value is None else len(values) - 1
        best, place = None, None
        for index, each in enumerate(values):
            value = finite(each)
            if value is not None and (best is None or self.better(value, best)):
                best, place = value, index
        if last and place is not None and values[-1] == best:
            place = len(values) - 1
        return best, place

    def better(self, value: float, other: float) -> bool:
        return value > other if self.goal == "maximize" else value < other

    def ordered(self, records: Iterable[JSON]) -> list[JSON]:
        """Records, best first; those without a score last, in the order of their names."""
        sign = -1.0 if self.goal == "maximize" else 1.0

        def place(record: JSON) -> tuple[bool, float, str]:
            score = record.get("score")
            return score is None, 0.0 if score is None else sign * score, record["name"]

        return sorted(records, key=place)


def finite(value: Any) -> float | None:
    """The value as a float; None for what is none, or not finite."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
