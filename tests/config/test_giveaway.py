"""What `distcore init` says of columns that tell the target, and of skewed targets."""

import numpy as np
import pyarrow as pa
import pytest

from distcore.config import giveaway, load_config
from distcore.config.initialise import suggest

ROWS = 400
DICE = np.random.default_rng(11)
NOISE = DICE.normal(size=ROWS)
GONE = DICE.random(ROWS) < 0.25
SIZE = DICE.lognormal(3, 0.4, ROWS)
NAMES = ["stays", "goes"]
WHY = np.where(GONE, np.where(NOISE > 0, "price", "moved"), "none")

TELLS = {
    "missing": pa.array([f"2026-01-{1 + n % 28:02}" if g else None for n, g in enumerate(GONE)]),
    "reason": pa.array(WHY),
    "refund": pa.array(np.where(GONE, 1 + np.abs(NOISE), 0.0)),
    "below": pa.array(np.where(GONE, -5 - np.abs(NOISE), NOISE)),
    "nearly": pa.array(np.where(GONE ^ (np.arange(ROWS) == 7), "x", "y")),
    "text_or_none": pa.array(
        [f"she called at {n} to say she goes" if g else None for n, g in enumerate(GONE)]
    ),
}
SAYS_LITTLE = {
    "noise": pa.array(NOISE),
    "half": pa.array(np.where(GONE & (NOISE > 0), "x", "y")),
    "middle": pa.array(np.where(GONE, NOISE / 100, np.where(NOISE > 0, 1 + NOISE, NOISE - 1))),
    "many": pa.array([f"A{n % 90}" for n in range(ROWS)]),
}


def lines(target: object, name: str = "target", **columns: object) -> dict[str, str]:
    """The line of each column."""
    text = suggest(pa.table({**columns, "noise": NOISE, name: target}), name)
    load_config(text)
    found = [line for line in text.splitlines() if "name: " in line]
    return {line.split("name: ")[1].split(",")[0]: line for line in found}


@pytest.mark.parametrize("name", TELLS)
def test_a_column_that_tells_the_class_is_named(name: str) -> None:
    found = lines(np.where(GONE, *NAMES[::-1]), **{name: TELLS[name]})
    assert "it tells target by itself" in found[name]
    assert "tells target" not in found["noise"]


@pytest.mark.parametrize("name", SAYS_LITTLE)
def test_one_that_is_only_useful_is_not(name: str) -> None:
    found = lines(np.where(GONE, *NAMES[::-1]), **{name: SAYS_LITTLE[name]})
    assert not any("tells target" in line for line in found.values())


def test_numbers_that_are_texts_are_looked_at_as_well() -> None:
    found = lines(
        np.where(GONE, *NAMES[::-1]),
        word=pa.array(["n/a" if n == 9 else str(n / 7) for n in range(ROWS)]),
        spelled=pa.array([f"{each:.6f}" for each in np.where(GONE, 1 + np.abs(NOISE), 0.0)]),
    )
    assert "type: number" in found["word"]
    assert "tells target" not in found["word"]
    assert "it tells target by itself" in found["spelled"]


@pytest.mark.parametrize(("rows", "named"), [(2, False), (3, True), (10, True)])
def test_a_rare_class_may_be_told_by_a_column_that_is_it(rows: int, named: bool) -> None:
    """Of a few rows one that is nearly so says nothing."""
    rare = np.arange(ROWS) < rows
    one_more = np.arange(ROWS) < rows + 1
    columns = {"code": np.where(rare, "x", "y"), "near": np.where(one_more, "x", "y")}
    found = lines(np.where(rare, *NAMES), **columns)
    assert ("it tells target by itself" in found["code"]) is named
    assert "tells target" not in found["near"]


@pytest.mark.parametrize(("rows", "named"), [(2, False), (3, True)])
def test_a_rare_class_may_be_told_by_what_is_missing(rows: int, named: bool) -> None:
    rare = np.arange(ROWS) < rows
    day = pa.array([f"2026-01-{1 + n % 28:02}" if each else None for n, each in enumerate(rare)])
    found = lines(np.where(rare, *NAMES), day=day)
    assert ("it tells target by itself" in found["day"]) is named


def test_rows_without_a_target_do_not_count() -> None:
    target = pa.array([None if n % 3 == 0 else NAMES[int(g)] for n, g in enumerate(GONE)])
    reason = pa.array(["?!" if n % 3 == 0 else why for n, why in enumerate(WHY)])
    assert "it tells target by itself" in lines(target, reason=reason)["reason"]


def test_a_number_in_other_units_is_named() -> None:
    price = 20_000 * SIZE
    rest = {"size": SIZE + NOISE, "cents": 100 * price, "log": np.log(price)}
    found = lines(pa.array(price), **rest, some=pa.array(price, mask=GONE))
    told = {name for name, line in found.items() if "tells target" in line}
    assert told == {"cents", "log", "some"}


def test_a_skewed_target_is_told_with_the_way_out() -> None:
    price = np.where(np.arange(ROWS) % 40 == 0, 30, 1) * SIZE
    assert "normalization: log1p" in lines(price)["target"]
    assert "log1p" not in lines(price - price.mean())["target"]
    assert "log1p" not in lines(NOISE + 10)["target"]


def test_a_rare_class_is_told() -> None:
    assert "the rarer in 4 % of the rows" in lines(np.arange(ROWS) % 25 == 0)["target"]
    assert "rarer" not in lines(GONE)["target"]
    classes = [f"c{n}" for n in np.minimum(np.arange(ROWS) // 100, 3)]
    assert "too few" not in lines(classes)["target"]
    found = lines(["odd", "even", "even", *classes[3:]])["target"]
    assert "2 of them in fewer than 10 rows, too few to learn from" in found


def test_a_name_of_several_lines_writes_none_of_its_own() -> None:
    name = "gone\noutput_features: []"
    found = lines(GONE, name, reason=TELLS["reason"])
    assert r"it tells gone\noutput_features: [] by itself" in found["reason"]


@pytest.mark.parametrize("target", [["yes", "no"], [1.5, 2.5]])
def test_rows_that_are_looked_at_may_have_no_target(
    monkeypatch: pytest.MonkeyPatch, target: list[object]
) -> None:
    monkeypatch.setattr(giveaway, "ROWS", 100)
    late = pa.array([*[None] * 200, *(target * 100)])
    found = lines(late, reason=TELLS["reason"], below=TELLS["below"])
    assert not any("; it tells" in line for line in found.values())
