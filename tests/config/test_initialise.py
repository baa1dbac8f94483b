"""A config written by looking at data: what each column is taken for, and that the text is a
config."""

import datetime
import math
import random
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore.config import RunConfig, load_config, resolve
from distcore.config.guess import Guess
from distcore.config.initialise import _feature_line, _plain, look, suggest
from distcore_core.errors import DataError
from distcore_core.registry.manager import Plugins
from distcore_data.sources.registry import sample

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
    "long": ([2**53 + DICE.randint(1, 900) for _ in range(ROWS)], "number"),
    "flag": ([DICE.random() < 0.5 for _ in range(ROWS)], "binary"),
    "zero_one": (some(0, 1, None), "binary"),
    "zero_one_float": (some(0.0, 1.0, None), "binary"),
    "said": (some("Yes", "no"), "binary"),
    "sex": (some("male", "female"), "category"),
    "town": (pa.array(some("york", "rome", "oslo", None)).dictionary_encode(), "category"),
    "codes": (some("A1", "B2", "C3"), "category"),
    "written_numbers": ([str(DICE.random()) for _ in range(ROWS)], "number"),
    "written_flag": (some("0", "1", "?"), "binary"),
    "written_hour": (some(*map(str, range(10))), "category"),
    "written_id": ([str(number) for number in range(ROWS)], None),
    "one_number": (some("7", "7.0", "+7"), None),
    "horsepower": (some("?", *map(str, range(50, 120))), "number"),
    "price": (
        pa.array([DICE.randint(1, 10**4) for _ in range(ROWS)]).cast(pa.decimal128(19, 0)),
        "number",
    ),
    "review": ([" ".join(DICE.choices(WORDS, k=9)) for _ in range(ROWS)], "text"),
    "title": ([f"{DICE.choice('ABCDEF')}ook {number}" for number in range(ROWS)], "set"),
    "age": (some("missing", "not available", "-", *map(str, range(18, 90))), "number"),
    "hour": (some(*range(10)), "category"),
    "hourOfDay": (some(*range(10)), "category"),
    "month_number": (some(*range(1, 13)), "category"),
    "hours": (some(*range(10)), "number"),
    "month": ([DICE.randint(1, 2000) for _ in range(ROWS)], "number"),
    "decimal_comma": ([f"{DICE.randint(0, 99)},{number % 100:02}" for number in range(ROWS)], None),
    "points": ([f"{row % 99 + 1}.{row % 900 + 100},{row % 100:02}" for row in range(ROWS)], None),
    "part_codes": ([f"{row % 9 + 100}.200.300" for row in range(ROWS)], "category"),
    "ages": ([*(f"{row % 20}" for row in range(1, ROWS)), "Total"], "category"),
    "with_total": ([*(str(row / 7) for row in range(1, ROWS)), "Total"], None),
    "numbered": ([*(f"{row % 10}" for row in range(1, ROWS)), "Total"], "category"),
    "thousands": ([f"{DICE.randint(1, 99)},{DICE.randint(100, 999)}" for _ in range(ROWS)], None),
    "cost": ([f"${DICE.random():.2f}" for _ in range(ROWS)], None),
    "euros": ([f"{DICE.randint(0, 99)} €" for _ in range(ROWS)], None),
    "share": ([f"{DICE.random():.1f}%" for _ in range(ROWS)], None),
    "plane": ([f"N{DICE.randint(0, 70)}" for _ in range(ROWS)], None),
    "carrier": (some(*[f"C{number}" for number in range(40)], *["AA", "UA"] * 40), "category"),
    "genres": (
        [
            ", ".join(DICE.sample(["drama", "comedy", "science fiction", "kids"], 2))
            for _ in range(ROWS)
        ],
        "set",
    ),
    "user_id": (DICE.sample(range(10**6), ROWS), None),
    "UserId": (DICE.sample(range(10**6), ROWS), None),
    "counter": (list(range(5, 5 + ROWS)), None),
    "hash": ([f"{DICE.getrandbits(64):016x}z" for _ in range(ROWS)], None),
    "constant": ([1] * ROWS, None),
    "constant_or_missing": (some("x", None), None),
    "empty": (pa.nulls(ROWS), None),
    "empty_text": (pa.array([None] * ROWS, pa.string()), None),
    "day": ([datetime.date(2020, 1, 1 + number % 28) for number in range(ROWS)], "date"),
    "when": ([datetime.datetime(2020, 1, 1 + number % 28) for number in range(ROWS)], "date"),
    "us_date": ([f"{DICE.randint(1, 12)}/{DICE.randint(1, 28)}/2020" for _ in range(ROWS)], "date"),
    "either_date": (some("1/2/2020", "3/4/2021", "5/6/2022"), None),
    "short_years": (some("31/2/20", "3/4/21", "5/6/22"), None),
    "dots": (some("31.12.2020 10:00", "1.2.2021 11:30", "n/a"), "date"),
    "few_days": (some("2020-01-01", "2021/01/01", "2022-01-01"), "date"),
    "zoned": (some("2020-01-01T10:00:00Z", "2020-01-01 10:00+02:00", "-"), "date"),
    "no_such_day": (some(*[f"2020-02-{day}" for day in range(10, 31)]), None),
    "clock": ([datetime.time(number % 24) for number in range(ROWS)], None),
    "stamp": (
        [f"2020-01-{DICE.randint(10, 28)} 10:00:{DICE.randint(10, 59)}" for _ in range(ROWS)],
        "date",
    ),
    "vector": ([[1.0, 2.0]] * ROWS, None),
    "picture": ([bytes([number]) for number in range(ROWS)], None),
    "picture_view": (pa.array([bytes([number]) for number in range(ROWS)], pa.binary_view()), None),
    "word": (pa.array([bytes([255, number]) for number in range(ROWS)], pa.binary(2)), None),
    "uuid": (pa.array([bytes([number] * 16) for number in range(ROWS)], pa.uuid()), None),
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


def test_nan_is_a_missing_value() -> None:
    """Of a Parquet file as polars writes it: classes became amounts, and a constant a number."""

    def written(missing: float | None) -> str:
        columns = {
            "y": pa.array([0.0, 1.0, 2.0, missing] * 50),
            "flag": pa.array([0.0, 1.0, missing, 1.0] * 50, pa.float32()),
            "constant": pa.array([1.0, missing] * 100),
            "height": COLUMNS["height"][0],
        }
        return suggest(pa.table(columns), "y")

    assert written(math.nan) == written(None)
    assert "name: y, type: category" in written(math.nan)


@pytest.mark.parametrize(
    ("there", "told"), [(4, "more than 99 % missing"), (20, "98 % missing"), (996, "less than 1 %")]
)
def test_a_column_that_is_used_is_not_called_all_missing(there: int, told: str) -> None:
    column = [each / 10 if each < there else None for each in range(1000)]
    text = suggest(pa.table({"x": column, "y": [each * 1.5 for each in range(1000)]}), "y")
    (line,) = (each for each in text.splitlines() if "name: x," in each)
    assert told in line


def test_views_of_texts_are_texts() -> None:
    """Parquet and feather files bring them, and Arrow cannot filter them: an error that nobody
    expected."""
    table = pa.table({"city": ["Rome", "Oslo", "Lima", "Rome"] * 50, "bought": ["yes", "no"] * 100})
    views = table.cast(pa.schema([(name, pa.string_view()) for name in table.column_names]))
    assert suggest(views, "bought") == suggest(table, "bought")
    commas = pa.table({"price": pa.array(["3,14", "2,5"] * 50, pa.string_view())})
    assert look(lambda options: {"dataset": commas})[1] == ","


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
        # Texts, as a file of another format than csv may have them: what a csv file holds then.
        (some("3", "4", "5", "6"), "category"),
        (some("1.0", "2.0", None), "category"),
        (some("0", "1", "?"), "binary"),
        ([str(DICE.random()) for _ in range(ROWS)], "number"),
        (list(map(str, range(ROWS))), "number"),
    ],
)
def test_a_target_is_taken_for(values: list[object], expected: str) -> None:
    config = read(suggest(pa.table({"height": COLUMNS["height"][0], "target": values}), "target"))
    (output,) = config.output_features
    assert output.type == expected
    stratified = config.preprocessing.split.type == "stratify"
    assert stratified == (expected in ("category", "binary"))


def test_several_targets() -> None:
    table = pa.table(
        {"height": COLUMNS["height"][0], "k": TARGET, "y": COLUMNS["unique_amount"][0]}
    )
    config = read(suggest(table, ["k", "y", "k"]))
    assert [(each.name, each.type) for each in config.output_features] == [
        ("k", "category"),
        ("y", "number"),
    ]
    assert config.preprocessing.split.type == "random"


def test_a_target_called_as_the_loss_of_all_outputs_gets_another_name() -> None:
    table = pa.table({"height": COLUMNS["height"][0], "combined": TARGET})
    output = read(suggest(table, "combined")).output_features[0]
    assert (output.name, output.column) == ("combined_output", "combined")


def test_a_column_without_a_name_is_left_out() -> None:
    columns = {"": COLUMNS["visits"][0], " ": COLUMNS["visits"][0], "height": COLUMNS["height"][0]}
    config = read(suggest(pa.table({**columns, "target": TARGET}), "target"))
    assert [each.name for each in config.input_features] == ["height"]


@pytest.mark.parametrize(
    ("name", "ending", "write"),
    [
        ("Unnamed: 0", "csv", pd.DataFrame.to_csv),
        ("__index_level_0__", "parquet", pd.DataFrame.to_parquet),
    ],
)
def test_the_index_of_a_shuffled_frame_is_left_out(tmp_path, name, ending, write) -> None:
    """It is the order that the rows were in, in which the target often lay."""
    rows = pd.DataFrame({"height": COLUMNS["height"][0], "target": TARGET.to_pylist()})
    write(rows.sample(frac=1, random_state=1), tmp_path / f"rows.{ending}")
    text = suggest(sample(tmp_path / f"rows.{ending}", ROWS), ["target"])
    assert types(text) == {"height": "number"}
    assert f'# "{name}" is left out: every row has its own value' in text


@pytest.mark.parametrize("lines", [False, True])
def test_a_column_of_several_types_is_left_out(tmp_path, lines) -> None:
    rows = pd.DataFrame({"height": COLUMNS["height"][0], "target": TARGET.to_pylist()})
    rows["mixed"] = ["one", *range(1, len(rows))]
    rows.to_json(tmp_path / "rows.json", orient="records", lines=lines)
    text = suggest(sample(tmp_path / "rows.json", ROWS), ["target"])
    assert types(text) == {"height": "number"}
    assert "# mixed is left out: it holds values of several types" in text


@pytest.mark.parametrize("rows", [1, 400_000])
def test_a_row_with_more_values_than_columns_is_named(tmp_path, rows) -> None:
    """Also where rows from all over a large file are looked at."""
    good = "30,Rome,yes\n41,Bonn,no\n"
    path = tmp_path / "odd.csv"
    path.write_text(f"age,city,bought\n{good}30,Rome,yes,,\n{good * rows}")
    said = "odd.csv, line 4: 5 values where the header has 3 columns: '30,Rome,yes,,'."
    with pytest.raises(DataError, match=re.escape(said)):
        sample(path, ROWS)


def test_a_name_that_a_config_reads_as_the_environments_is_left_out(monkeypatch) -> None:
    """Whoever made the data would choose what of the environment comes into results."""
    monkeypatch.setenv("SECRET", "hidden")
    name = "x${ENV:SECRET}"
    table = pa.table({name: COLUMNS["height"][0], "h": COLUMNS["height"][0], "y": TARGET})
    text = suggest(table, "y")
    assert [each["name"] for each in load_config(text).as_json()["input_features"]] == ["h"]
    assert "rename the column" in text
    with pytest.raises(DataError, match="the environment's value stands for its name; rename"):
        suggest(table, name)


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


def test_of_thousands_of_columns_some_are_named() -> None:
    table = pa.table({f"x{number}": [1, 2] for number in range(3000)})
    with pytest.raises(DataError) as caught:
        suggest(table, "y")
    assert str(caught.value).endswith(", x48, x49 and 2,950 more.")
    with pytest.raises(DataError, match=r"Columns: x0, .*, x48, x49\.$"):
        suggest(table.select(range(50)), "y")


def test_nothing_to_predict_from() -> None:
    with pytest.raises(DataError, match="No column is left to predict from"):
        suggest(pa.table({"constant": [1] * ROWS, "target": TARGET}), "target")


@given(
    st.lists(
        st.text(min_size=1, max_size=12).filter(lambda name: name.strip()),
        min_size=1,
        max_size=4,
        unique=True,
    )
)
@settings(max_examples=60, deadline=None)
def test_any_column_name_survives(names: list[str]) -> None:
    columns = {name: COLUMNS["height"][0] for name in names if name != "target"}
    table = pa.table({**columns, "visits": COLUMNS["visits"][0], "target": TARGET})
    config = load_config(suggest(table, "target"))
    assert {each.column for each in config.input_features} == {*columns, "visits"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("age", "numbers, and 'missing', 'not available', '-' for missing"),
        ("hour", "0 to 9 go round, as a clock does"),
        ("decimal_comma", "its numbers have decimal commas"),
        ("points", "its numbers have points between thousands"),
        ("with_total", "it holds numbers, and 'Total', which is none"),
        ("ages", "as one; it holds numbers, and 'Total', which is none"),
        ("thousands", "its numbers have commas between thousands"),
        ("cost", "its numbers have currency signs"),
        ("euros", "its numbers have currency signs"),
        ("share", "its numbers have percent signs"),
        ("plane", "none of its"),
        ("carrier", "42 values, of which 2 are in 10 rows and more"),
        ("review", "9 words on average"),
        ("title", "2 words on average"),
        ("town", "3 values; "),
        ("height", " to "),
    ],
)
def test_every_choice_says_why(name: str, said: str) -> None:
    table = pa.table({name: COLUMNS[name][0], "other": COLUMNS["visits"][0], "target": TARGET})
    text = suggest(table, "target").partition("input_features:")[2]
    assert said in text.partition(name)[2].partition("\n")[0]


def test_a_target_that_no_number_reads_is_an_error_that_says_what_to_write() -> None:
    table = pa.table({"height": COLUMNS["height"][0], "cost": COLUMNS["cost"][0]})
    with pytest.raises(DataError, match=r"currency signs, such as '\$.*write \$12.50 as 12.50"):
        suggest(table, "cost")


def test_texts_are_embedded_and_rare_values_are_one() -> None:
    names = ("review", "carrier")
    table = pa.table({**{name: COLUMNS[name][0] for name in names}, "target": TARGET})
    review, carrier = read(suggest(table, "target")).input_features
    assert review.options["encoder"]["type"] == "embed"
    assert carrier.options["preprocessing"]["most_common"] == 2


def sets(**changes: object) -> dict[str, pa.Table]:
    """A training set and a test set. changes: columns of the test set."""
    rows = {"height": COLUMNS["height"][0], "visits": COLUMNS["visits"][0], "target": TARGET}
    return {"training_set": pa.table(rows), "test_set": pa.table({**rows, **changes})}


def test_sets_that_are_given_are_not_split_again() -> None:
    text = suggest(sets(), "target")
    assert "split" not in text
    assert f"for about {ROWS} rows to train on" in text


def test_every_set_is_looked_at() -> None:
    """Numbers in one and texts in another are texts; a spelling of missing in the test set is
    declared."""
    words = pa.array(["n.a.", *map(str, range(ROWS - 1))])
    config = read(suggest(sets(visits=words), "target"))
    assert types(suggest(sets(visits=words), "target"))["visits"] == "number"
    assert "n.a." in (config.preprocessing.csv.null_values or ())
    labels = some("a few", "many", "none of them")
    assert types(suggest(sets(visits=labels), "target"))["visits"] == "category"


def test_a_column_that_one_set_does_not_have_is_left_out() -> None:
    given = sets()
    given["test_set"] = given["test_set"].drop_columns("visits")
    text = suggest(given, "target")
    assert "# visits is left out: the test set does not have it" in text
    assert "visits" not in types(text)


class Counted:
    """A table that counts how often it is asked for the names of all its columns."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.asked = 0

    @property
    def column_names(self) -> list[str]:
        self.asked += 1
        return self.table.column_names

    def __getattr__(self, name: str) -> object:
        return getattr(self.table, name)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self.table[name]


@pytest.mark.parametrize("names", [["dataset"], ["training_set", "test_set"]])
def test_all_names_are_not_gone_through_for_each_column(names: list[str]) -> None:
    """A table of 20,000 columns took minutes."""

    def asked(columns: int) -> int:
        rows = {f"c{number}": COLUMNS["visits"][0] for number in range(columns)}
        tables = {name: Counted(pa.table({**rows, "target": TARGET})) for name in names}
        assert f"name: c{columns - 1}," in suggest(tables, "target")
        return sum(table.asked for table in tables.values())

    assert asked(2) == asked(40)


def test_trees() -> None:
    table = pa.table(
        {**{name: COLUMNS[name][0] for name in ("height", "review")}, "target": TARGET}
    )
    text = suggest(table, "target", "trees")
    config = load_config(text)
    assert config.backend.trainer is not None
    assert config.backend.trainer.type == "lightgbm"
    assert "combiner" not in text
    assert "# review is left out: it looks like a text, and trees split on one value a row" in text


@pytest.mark.parametrize(
    ("rows", "size"), [(20, 8), (1000, 16), (4000, 64), (9000, 128), (90_000, 1024)]
)
def test_batches_grow_with_the_rows(rows: int, size: int) -> None:
    table = pa.table(
        {"height": [each / 7 for each in range(rows)], "target": ["a", "b"] * (rows // 2)}
    )
    config = load_config(suggest(table, "target"))
    assert config.trainer.batch_size == size
    assert config.trainer.validation_metric == "loss"


def test_a_network_is_sized_by_all_rows_and_not_by_those_looked_at() -> None:
    """Of two million rows the first 50,000 are looked at: each batch had 128 rows."""
    table = pa.table({"height": COLUMNS["height"][0], "target": TARGET})
    text = suggest(table, "target", rows=2_000_000)
    config = load_config(text)
    assert (config.trainer.batch_size, config.trainer.epochs) == (1024, 20)
    assert "from a look at 200 of about 2,000,000 rows." in text
    assert "for about 1,400,000 rows to train on" in text
    assert config == load_config(suggest({"dataset": table}, "target", rows=2_000_000))
    assert "from a look at 200 rows." in suggest(table, "target", rows=200)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (300_000, "# label is left out: nearly every row has its own value"),
        (20_000, "# label is left out: a value of it is in about "),
        (2_000, "- {name: label, type: category}  # "),
    ],
)
def test_labels_are_counted_as_in_all_rows_and_not_in_those_looked_at(
    values: int, line: str
) -> None:
    """Of a value that 50 of 100,000 rows have a look at 1,000 finds none or one."""
    drawn = np.random.default_rng(5).choice(values, 1000, replace=values < 100_000)
    table = pa.table({"label": [f"v{each}" for each in drawn], "target": ["a", "b"] * 500})
    other = table.append_column("other", pa.array(["x", "y"] * 500))
    text = suggest(other, "target", rows=100_000)
    assert line in text
    assert "most_common" not in text


def test_a_target_is_refused_for_the_rows_looked_at() -> None:
    table = pa.table({"height": [1.5, 2.5, 1.0], "target": ["a", "a", "a"]})
    with pytest.raises(DataError, match="it has one value only in the 3 of about 90 rows looked"):
        suggest(table, "target", rows=90)


def test_a_counter_is_none_the_less_where_a_look_goes_on_elsewhere() -> None:
    counted = [*range(100), *range(1000, 1100)]
    table = pa.table({"n": counted, "height": COLUMNS["height"][0], "target": TARGET})
    assert "# n is left out: every row has its own value" in suggest(table, "target", rows=900)


def test_classes_that_are_rare_in_a_look_may_have_enough_rows() -> None:
    target = ["a"] * 500 + ["b"] * 496 + ["c"] * 4
    table = pa.table({"height": [each / 7 for each in range(1000)], "target": target})
    said = "1 of them in fewer than 10 rows, too few to learn from"
    assert said in suggest(table, "target")
    assert said in suggest(table, "target", rows=2000)
    assert "too few to learn from" not in suggest(table, "target", rows=3000)


def test_columns_that_tell_a_target_are_looked_for_in_all_that_is_at_hand(monkeypatch) -> None:
    """Of a table that is sorted by its target the first rows have one class."""
    monkeypatch.setattr("distcore.config.giveaway.ROWS", 400)
    target = ["a"] * 500 + ["b"] * 500
    table = pa.table({"told": ["x"] * 500 + ["y"] * 500, "target": target})
    assert "it tells target by itself" in suggest(table, "target")
    uneven = pa.table({"height": range(0, 2000, 2), "target": ["a"] * 950 + ["b"] * 50})
    assert "the rarer in 5 % of the rows" in suggest(uneven, "target")


@pytest.mark.parametrize(
    ("rows", "encoder"),
    [
        (300, {"type": "dense", "output_size": 8}),
        (1000, {"type": "ple", "num_bins": 16, "output_size": 8, "activation": "relu"}),
        (5000, {"type": "ple", "num_bins": 32, "output_size": 32, "activation": "relu"}),
    ],
)
def test_more_rows_stand_more_bins(rows: int, encoder: dict[str, object]) -> None:
    """Rows of a training set that is given."""
    table = pa.table(
        {"height": [each / 7 for each in range(rows)], "target": [1.5, 2.5] * (rows // 2)}
    )
    height, *_ = read(suggest({"training_set": table}, "target")).input_features
    assert height.options["encoder"] == encoder
    asked = height.options["preprocessing"].get("quantiles")
    assert asked == encoder.get("num_bins")


def test_of_very_many_numbers_trees_are_named() -> None:
    columns = {f"x{each}": [row * 1.5 + each for row in range(60)] for each in range(1000)}
    table = pa.table({**columns, "target": [1.5, 2.5, 3.5] * 20})
    assert "# Each of 1,000 numbers has an encoder of its own" in suggest(table, "target")
    assert "init --model trees" not in suggest(table.drop_columns(["x7"]), "target")
    assert "encoder of its own" not in suggest(table, "target", model="trees")


def test_the_editor_is_told_the_schema() -> None:
    first, *_ = suggest(
        pa.table({"a": COLUMNS["height"][0], "target": TARGET}), "target"
    ).splitlines()
    assert first == "# yaml-language-server: $schema=distcore.schema.json"


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


def test_no_value_of_the_data_ends_a_comment() -> None:
    """It went on as a line of the config."""
    assert "\n" not in _feature_line(Guess("when", "date", why="dates, such as 1\n  - {name: x2}"))
    assert "\u2028" not in _feature_line(Guess("when", None, why="it holds struct<a\u2028b: int>"))


def test_two_columns_of_one_name_are_an_error() -> None:
    table = pa.table([[1.0, 2.0], [1.0, 3.0]], names=["x", "x"])
    with pytest.raises(DataError, match=r"two columns 'x'\. Rename one"):
        _plain(table)
