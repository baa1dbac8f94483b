"""Columns that a feature of dates asks for: times where a source has them, else texts of them."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from distcore_data.dataset import Data
from distcore_data.features import agreed
from distcore_data.sources import parquet_columns
from distcore_data.sources.options import DelimitedOptions
from distcore_data.sources.registry import open_source

SECOND = pa.timestamp("s")
TICKS = np.random.default_rng(1).integers(-(10**15), 10**15, 5000)
MOMENTS = pa.array(TICKS, mask=TICKS % 7 == 0).view(pa.timestamp("us"))
SECONDS = [None if tick % 7 == 0 else int(tick // 10**6) for tick in TICKS]


def written(folder, kind, column):
    table = pa.table({"when": column, "other": np.arange(len(column))})
    path = folder / f"data.{kind}"
    if kind == "frame":
        return table
    if kind == "pandas":
        return table.to_pandas()
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=2000)
    elif kind == "feather":
        pa.feather.write_feather(table, path, chunksize=2000)
    elif kind == "csv":
        pa.csv.write_csv(table, path)
    else:
        table.to_pandas().to_json(path, orient="records", lines=True, date_format="iso")
    return path


def blocks(dataset, raw="time", **options):
    source = open_source(dataset, {"when": raw}, options=DelimitedOptions(**options))
    try:
        return [part.read().column(0) for part in source.partitions(20_000)]
    finally:
        source.close()


def whole(found):
    return pa.chunked_array(found).cast(pa.int64()).to_pylist()


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "by Arrow"])
@pytest.mark.parametrize("kind", ["parquet", "feather", "frame", "pandas"])
def test_timestamps_come_to_the_second(tmp_path, monkeypatch, kind, compiled):
    """A second begins when its text does: also before 1970."""
    if not compiled:
        monkeypatch.setattr(parquet_columns, "compiled", None)
    found = blocks(written(tmp_path, kind, MOMENTS))
    assert {each.type for each in found} == {SECOND}
    assert len(found) > 1
    assert whole(found) == SECONDS


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_any_unit_is_to_the_second(tmp_path, unit):
    ticks = pa.array([-1, 0, None, 10**9, 10**15 + 1])
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    found = blocks(written(tmp_path, "frame", ticks.view(pa.timestamp(unit))))
    assert whole(found) == [
        None if each is None else each // per_second for each in ticks.to_pylist()
    ]


def test_days_are_their_midnight(tmp_path):
    days = pa.array([-1, None, 3], pa.int32()).view(pa.date32())
    for kind in ("parquet", "feather", "frame"):
        assert whole(blocks(written(tmp_path, kind, days))) == [-86_400, None, 3 * 86_400]


@pytest.mark.parametrize(
    "column",
    [
        MOMENTS.cast(pa.timestamp("us", "Europe/Berlin")),
        MOMENTS.cast(pa.utf8()),
        MOMENTS.cast(pa.date64(), safe=False),
        pa.nulls(20),
        pa.array(range(20)),
        pa.array([datetime.time(1), None] * 10),
        pa.array([True, False] * 10),
    ],
    ids=["zone", "text", "date64", "null", "number", "clock", "truth"],
)
@pytest.mark.parametrize("kind", ["parquet", "feather", "frame"])
def test_other_columns_are_categories(tmp_path, kind, column):
    """Those with a zone are read by its clock; date64 may hold more than days."""
    dataset = written(tmp_path, kind, column)
    if kind == "parquet" and column.type == pa.date64():
        pytest.skip("Parquet makes it a date32")
    for one, other in zip(blocks(dataset), blocks(dataset, "category"), strict=True):
        assert pa.types.is_dictionary(one.type)
        assert one.equals(other)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_text_has_no_times(tmp_path, kind):
    dataset = written(tmp_path, kind, MOMENTS)
    for one, other in zip(blocks(dataset), blocks(dataset, "category"), strict=True):
        assert one.equals(other)


def test_a_null_spelling_that_is_a_time_counts(tmp_path):
    """`9999-12-31` is what some databases write for none."""
    days = pa.array([datetime.date(9999, 12, 31), datetime.date(2024, 1, 31)])
    for kind in ("parquet", "feather", "frame"):
        dataset = written(tmp_path, kind, days)
        (found,) = blocks(dataset, null_values=("", "NA", "9999-12-31"))
        assert found.to_pylist() == [None, "2024-01-31"]
        (found,) = blocks(dataset)
        assert found.type == SECOND


@pytest.mark.parametrize(
    ("other", "seconds"),
    [
        (pa.nulls(5), [None] * 5),
        (MOMENTS[:5].cast(pa.timestamp("ms"), safe=False), SECONDS[:5]),
        (
            MOMENTS[:5].cast(pa.timestamp("us", "Asia/Tokyo")),
            [None if each is None else each + 9 * 3600 for each in SECONDS[:5]],
        ),
        (MOMENTS[:5].dictionary_encode(), SECONDS[:5]),
    ],
    ids=["nothing", "another unit", "a zone", "a dictionary"],
)
def test_files_that_have_the_column_otherwise_are_read_as_the_first(tmp_path, other, seconds):
    for name, columns in (("times", [MOMENTS[:5], other]), ("turned", [other, MOMENTS[:5]])):
        folder = tmp_path / name
        folder.mkdir()
        for number, column in enumerate(columns):
            pq.write_table(pa.table({"when": column}), folder / f"{number}.parquet")
        found = blocks(folder)
        assert len({each.type for each in found}) == 1
        assert sum(map(len, found)) == 10
        if name == "times":
            assert found[0].type == SECOND
            assert whole(found) == SECONDS[:5] + seconds


def test_what_else_reads_the_column_sees_texts():
    assert agreed("time", "time") == "time"
    assert agreed("time", "category") == agreed("category", "time") == "category"
    assert agreed("number", "time") is None


def test_sets_of_their_own_read_alike(tmp_path):
    """One of them may have times, and another one texts."""
    training, test = written(tmp_path, "parquet", MOMENTS), written(tmp_path, "csv", MOMENTS)
    with Data(training_set=training, test_set=test).open({"when": "time"}) as source:
        found = [part.read().column(0) for part in source.partitions(1 << 30)]
    assert {str(each.type) for each in found} == {
        "dictionary<values=string, indices=int32, ordered=0>"
    }
    assert found[0].to_pylist() == found[-1].to_pylist()


def test_pandas_without_a_time_is_null():
    frame = pd.DataFrame({"when": [pd.Timestamp("2024-01-31"), pd.NaT]})
    (found,) = blocks(frame)
    assert found.cast(pa.int64()).to_pylist() == [1_706_659_200, None]


@pytest.mark.parametrize("raw", ["category", "string"])
def test_a_far_time_beside_a_fine_one_stays_what_it_is(tmp_path, raw):
    """As nanoseconds, of which an int64 holds years up to 2262, 9999 became 1816."""
    far = pa.array(["9999-12-31", "0001-01-01"]).cast(pa.timestamp("s"))
    for number, column in enumerate(
        [far, far.cast(pa.timestamp("ms")), pa.array([1_500, None]).view(pa.timestamp("ns"))]
    ):
        pq.write_table(pa.table({"when": column}), tmp_path / f"{number}.parquet")
    found = [value for block in blocks(tmp_path, raw) for value in block.to_pylist()]
    texts = ["9999-12-31 00:00:00.000000000", "0001-01-01 00:00:00.000000000"]
    assert found == [*texts, *texts, "1970-01-01 00:00:00.000001500", None]
    zoned = far.cast(pa.timestamp("s", "UTC"))
    (block,) = blocks(pa.table({"when": zoned}), raw)
    assert block.to_pylist() == ["9999-12-31 00:00:00+00:00", "0001-01-01 00:00:00+00:00"]


def test_a_file_without_a_value_among_others(tmp_path):
    """pandas writes a column of None as one of type null."""
    pq.write_table(pa.table({"when": MOMENTS[:5]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"when": pa.nulls(3)}), tmp_path / "1.parquet")
    for raw in ("category", "string", "time"):
        found = [value for block in blocks(tmp_path, raw) for value in block.to_pylist()]
        assert len(found) == 8
        assert found[5:] == [None] * 3


def test_seconds_of_years_of_five_digits(tmp_path):
    """With a zone the last digits of 10000-01-01 00:00:07+00:00 were cut off: ten seconds were
    one."""
    first = 253_402_300_800  # of the year 10000
    for unit, per_second in (("s", 1), ("ms", 10**3), ("us", 10**6)):
        ticks = [(first + second) * per_second for second in (0, 7)] + [None, -per_second]
        zoned = pa.array(ticks, pa.timestamp(unit, "UTC"))
        (block,) = blocks(pa.table({"when": zoned}), "category")
        assert block.to_pylist() == [
            "10000-01-01 00:00:00+00:00",
            "10000-01-01 00:00:07+00:00",
            None,
            "1969-12-31 23:59:59+00:00",
        ]


def test_times_of_a_day_to_the_nanosecond(read, tmp_path):
    """Those of one microsecond were one value."""
    ticks = [0, 1, 1000, 1001, 10**9, 10**9 + 7, None, 86_400 * 10**9 - 1]
    texts = ["00:00:00", "00:00:00.000000001", "00:00:00.000001", "00:00:00.000001001"]
    texts += ["00:00:01", "00:00:01.000000007", None, "23:59:59.999999999"]
    times = pa.array(ticks, pa.time64("ns"))
    table = pa.table({"flat": times, "coded": times.dictionary_encode()})
    pq.write_table(table, tmp_path / "data.parquet")
    raw = {"flat": "category", "coded": "string"}
    for dataset in (table, tmp_path / "data.parquet"):
        assert read(dataset, raw) == {"flat": texts, "coded": texts}
    assert read(table.slice(1), raw) == {"flat": texts[1:], "coded": texts[1:]}
