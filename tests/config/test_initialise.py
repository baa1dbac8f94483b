"""A config written by looking at data: what each column is taken for, and that the text is a config."""

import datetime
import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore.config import RunConfig, load_config, resolve
from distcore.config.initialise import suggest
from distcore_core.errors import DataError
from distcore_core.registry.manager import Plugins

ROOT = Path(__file__).parents[2]
ROWS = 200
DICE = random.Random(7)


def some(*values: object) -> list[object]:
    """ROWS of these values, every one of them at least once."""
    return [*values, *DICE.choices(values, k=ROWS - len(values))]


WORDS = ["the", "film", "was", "very", "good", "bad", "long"]
TARGET = pa.array(some("a", "b", "c"))
COLUMNS: dict[str, tuple[object, str | None]] = {
    "height": ([DICE.gauss(170, 10) for _ in range(ROWS)], "number"),
    "visits": ([DICE.randint(0, 900) for _ in range(ROWS)], "number"),
    "unique_amount": (DICE.sample(range(10**6), ROWS), "number"),
    "flag": ([DICE.random() < 0.5 for _ in range(ROWS)], "binary"),
    "zero_one": (some(0, 1, None), "binary"),
    "zero_one_float": (some(0.0, 1.0, None), "binary"),
    "said": (some("Yes", "no"), "binary"),
    "sex": (some("male", "female"), "category"),
    "town": (pa.array(some("york", "rome", "oslo", None)).dictionary_encode(), "category"),
    "codes": (some("A1", "B2", "C3"), "category"),
    "written_numbers": ([str(DICE.random()) for _ in range(ROWS)], "number"),
    "horsepower": (some("?", *map(str, range(50, 120))), "number"),
    "price": (pa.array([DICE.randint(1, 10**4) for _ in range(ROWS)]).cast(pa.decimal128(19, 0)), "number"),
    "review": ([" ".join(DICE.choices(WORDS, k=9)) for _ in range(ROWS)], "text"),
    "title": ([f"{DICE.choice('ABCDEF')}ook {number}" for number in range(ROWS)], "text"),
    "genres": ([", ".join(DICE.sample(["drama", "comedy", "science fiction", "kids"], 2)) for _ in range(ROWS)], "set"),
    "user_id": (DICE.sample(range(10**6), ROWS), None),
    "UserId": (DICE.sample(range(10**6), ROWS), None),
    "counter": (list(range(5, 5 + ROWS)), None),
    "hash": ([f"{DICE.getrandbits(64):016x}z" for _ in range(ROWS)], None),
    "constant": ([1] * ROWS, None),
    "constant_or_missing": (some("x", None), None),
    "empty": (pa.nulls(ROWS), None),
    "empty_text": (pa.array([None] * ROWS, pa.string()), None),
    "day": ([datetime.date(2020, 1, 1 + number % 28) for number in range(ROWS)], None),
    "when": ([datetime.datetime(2020, 1, 1 + number % 28) for number in range(ROWS)], None),
    "us_date": ([f"{DICE.randint(1, 12)}/{DICE.randint(1, 28)}/2020" for _ in range(ROWS)], None),
    "stamp": ([f"2020-01-{DICE.randint(10, 28)} 10:00:{DICE.randint(10, 59)}" for _ in range(ROWS)], None),
    "vector": ([[1.0, 2.0]] * ROWS, None),
    "picture": ([bytes([number]) for number in range(ROWS)], None),
}


def read(text: str) -> RunConfig:
    return resolve(load_config(text), Plugins())


def types(text: str) -> dict[str, str]:
    config = read(text)
    return {each.column: each.type for each in config.input_features}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_taken_for(name: str) -> None:
    values, expected = COLUMNS[name]
    table = pa.table({name: values, "other": COLUMNS["height"][0], "target": TARGET})
    text = suggest(table, ["target"])
    assert types(text).get(name) == expected
    if expected is None:
        assert f"# {name} is left out: " in text


def test_all_of_them_together_are_one_config() -> None:
    table = pa.table({**{name: values for name, (values, _) in COLUMNS.items()}, "target": TARGET})
    found = types(suggest(table, "target"))
    assert found == {name: expected for name, (_, expected) in COLUMNS.items() if expected}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (some("a", "b", "c"), "category"),
        (some(3, 4, 5, 6), "category"),
        (some(1.0, 2.0, None), "category"),
        (some(True, False), "binary"),
        (some(0, 1), "binary"),
        (some("yes", "no"), "binary"),
        ([DICE.random() for _ in range(ROWS)], "number"),
        (list(range(ROWS)), "number"),
    ],
)
def test_a_target_is_taken_for(values: list[object], expected: str) -> None:
    config = read(suggest(pa.table({"height": COLUMNS["height"][0], "target": values}), "target"))
    (output,) = config.output_features
    assert output.type == expected
    stratified = config.preprocessing.split.type == "stratify"
    assert stratified == (expected in ("category", "binary"))


def test_several_targets() -> None:
    table = pa.table({"height": COLUMNS["height"][0], "k": TARGET, "y": COLUMNS["unique_amount"][0]})
    config = read(suggest(table, ["k", "y", "k"]))
    assert [(each.name, each.type) for each in config.output_features] == [("k", "category"), ("y", "number")]
    assert config.preprocessing.split.type == "random"


def test_texts_that_mean_missing_are_declared_so() -> None:
    config = read(suggest(pa.table({"hp": COLUMNS["horsepower"][0], "target": TARGET}), "target"))
    nulls = config.preprocessing.csv.null_values
    assert nulls is not None
    assert {"?", "", "NA"} <= set(nulls)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("taget", "There is no column 'taget'. Did you mean 'target'?"),
        ("constant", "Column 'constant' cannot be a target: it has one value only."),
        ("empty", "Column 'empty' cannot be a target: it is empty."),
        ("when", "Column 'when' cannot be a target: it holds times"),
        ("hash", "Column 'hash' cannot be a target: nearly every row has its own value"),
    ],
)
def test_a_target_that_cannot_be_one(target: str, said: str) -> None:
    names = ("constant", "empty", "when", "hash", "height")
    table = pa.table({**{name: COLUMNS[name][0] for name in names}, "target": TARGET})
    with pytest.raises(DataError) as caught:
        suggest(table, target)
    assert str(caught.value).startswith(said)


def test_nothing_to_predict_from() -> None:
    with pytest.raises(DataError, match="No column is left to predict from"):
        suggest(pa.table({"constant": [1] * ROWS, "target": TARGET}), "target")


@given(
    st.lists(st.text(min_size=1, max_size=12).filter(lambda name: name.strip()), min_size=1, max_size=4, unique=True)
)
@settings(max_examples=60, deadline=None)
def test_any_column_name_survives(names: list[str]) -> None:
    columns = {name: COLUMNS["height"][0] for name in names if name != "target"}
    table = pa.table({**columns, "visits": COLUMNS["visits"][0], "target": TARGET})
    config = load_config(suggest(table, "target"))
    assert {each.column for each in config.input_features} == {*columns, "visits"}


def test_the_example_dataset() -> None:
    from distcore_data.sources.registry import sample

    text = suggest(sample(ROOT / "examples/penguins/penguins.csv", 50_000), "species")
    assert types(text) == {
        "island": "category",
        "bill_length_mm": "number",
        "bill_depth_mm": "number",
        "flipper_length_mm": "number",
        "body_mass_g": "number",
        "sex": "category",
        "year": "number",
    }
    assert max(map(len, text.splitlines())) < 140
