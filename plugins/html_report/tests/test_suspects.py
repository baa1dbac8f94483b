"""Inputs that the report suspects of following from what is predicted."""

import re

import pytest

from distcore_report.summary_sections import importance


def remark(value: float | None, higher: bool = False, **worths: float) -> str:
    """What follows the bars, without tags."""
    summary = {
        "importance": {
            "metric": "loss",
            "rows": 1000,
            "inputs": [{"input": name, "worse_by": each} for name, each in worths.items()],
        },
        "headline": {
            "value": value,
            "baseline": 0.5,
            "higher_is_better": higher,
            "better": None if value is None else True,
        },
    }
    return re.sub(r"<[^>]+>", "", "".join(importance(summary)).split("</table></div>")[1])


REST = {"age": 1e-9, "town": -1e-3, "pay": 0.0}


def test_one_input_that_has_nearly_all_is_named_whatever_the_score() -> None:
    said = remark(0.3, cancelled=5.0, **REST)
    assert said.startswith("cancelled has 100% of it. Look whether it is known")


def test_several_are_named_where_hardly_a_row_is_wrong() -> None:
    said = remark(1e-9, refund=0.6, cancelled=5.4, **REST)
    assert said.startswith("cancelled and refund have 100% of it, and hardly a row is wrong.")


@pytest.mark.parametrize(
    ("value", "higher", "worths"),
    [
        (0.3, False, {"refund": 0.6, "cancelled": 5.4, **REST}),  # a useful model
        (0.99, True, {"refund": 0.6, "cancelled": 5.4, **REST}),
        (None, False, {"refund": 0.6, "cancelled": 5.4, **REST}),
        (1e-9, False, {"refund": 0.6, "cancelled": 5.4, "age": 1e-9}),  # most of the inputs
        (1e-9, False, {f"c{n}": 1.0 for n in range(20)}),  # shared by many
        (1e-9, False, dict.fromkeys("abcdef", 0.0)),
    ],
)
def test_nothing_is_said_of_what_may_well_be(
    value: float | None, higher: bool, worths: dict[str, float]
) -> None:
    assert remark(value, higher, **worths) == ""
