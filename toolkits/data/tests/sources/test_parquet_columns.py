"""The compiled reader of Parquet's columns gives what Arrow's gives, to the bit, and leaves the
rest to it."""

import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_core.errors import DataError
from distcore_data.sources import parquet_columns, parquet_footers, parquet_groups
from distcore_data.sources.datafile import DataFile
from distcore_data.sources.parquet_columns import CODES, columns_at, rows_at
from distcore_data.sources.parquet_footers import (
    Facts,
    footer_of,
    places_of,
)
from distcore_data.sources.parquet_groups import JoinedGroups, ParquetPartition
from distcore_data.sources.registry import open_source

pytestmark = pytest.mark.skipif(
    parquet_columns.compiled is None, reason="distcore was installed without a C compiler"
)
NAMES = ("number", "few", "whole", "text", "label", "short", "count", "day", "time", "zoned")
ANY_PAGES = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["snappy", "none"]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "use_dictionary": st.booleans(),
        "data_page_size": st.sampled_from([64, 1000, 1 << 20]),
        "dictionary_pagesize_limit": st.sampled_from([50, 1000, 1 << 20]),
        "write_batch_size": st.sampled_from([1, 10, 1024]),
        "write_page_checksum": st.booleans(),
        "write_statistics": st.booleans(),
    }
)
"""How a file is written."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("columns")


@pytest.fixture(autouse=True)
def every_row_group(monkeypatch):
    monkeypatch.setattr(parquet_columns, "FEWEST_ROWS", 0)


def table(rows, seed, missing, nullable=True):
    """Columns of every kind that is taken. missing: how many of the rows, 0 to 1; above 1 all but
    the first ones."""
    dice = np.random.default_rng(seed)
    values = {
        "number": pa.array(dice.standard_normal(rows)),
        "few": pa.array(dice.integers(-2, 3, rows) / 4),
        "whole": pa.array(dice.integers(-9, 1 << dice.integers(1, 40), rows)),
        "text": pa.array(["é" * int(size) for size in dice.integers(0, 30, rows)], pa.utf8()),
        "label": pa.array([f"v{each}" for each in dice.integers(0, 40, rows)], pa.utf8()),
        "short": pa.array(dice.standard_normal(rows).astype(np.float32)),
        "count": pa.array(dice.integers(-9, 1 << dice.integers(1, 20), rows).astype(np.int32)),
        "day": pa.array(dice.integers(-(10**4), 10**4, rows).astype(np.int32)).view(pa.date32()),
        "time": pa.array(dice.integers(-(10**15), 10**15, rows)).view(pa.timestamp("us")),
        "zoned": pa.array(dice.integers(-9, 9, rows)).view(pa.timestamp("ms", "Asia/Tokyo")),
    }
    gone = pa.array(
        np.arange(rows) >= rows // 3 if missing > 1 else dice.random(rows) < missing, pa.bool_()
    )
    columns = [
        pa.compute.if_else(gone, pa.nulls(rows, each.type), each) if missing else each
        for each in values.values()
    ]
    fields = [pa.field(name, each.type, nullable) for name, each in values.items()]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def partition(path, names, dictionaries, group):
    """A whole row group of a file, as ParquetSource makes it."""
    file, metadata = DataFile.at(path, str(path)), pq.ParquetFile(path).metadata
    schema, footer = pq.ParquetFile(path).schema_arrow, footer_of(file, metadata.num_columns)
    leaves = [schema.get_field_index(name) for name in names]
    places = (
        None
        if footer is None or metadata.num_columns != len(schema)
        else places_of(footer.groups[group], leaves, file.state.bytes)
    )
    rows, fields = metadata.row_group(group).num_rows, tuple(map(schema.field, names))
    raw = tuple((name, "string") for name in names)
    return ParquetPartition(
        file, group, rows, 0, 0, rows, raw, tuple(dictionaries), (), (), fields, places
    )


def facts_of_arrow(path):
    metadata = pq.ParquetFile(path).metadata
    return [
        [
            Facts(
                min(about.data_page_offset, about.dictionary_page_offset or 1 << 40),
                about.total_compressed_size,
                about.total_uncompressed_size,
                {"UNCOMPRESSED": 0, "SNAPPY": 1, "ZSTD": 6}[about.compression],
                about.num_values,
                any("DELTA" in each for each in about.encodings),
            )
            for about in map(metadata.row_group(group).column, range(metadata.num_columns))
        ]
        for group in range(metadata.num_row_groups)
    ]


def both(path, names=NAMES, dictionaries=("label",), group=0):
    """A row group as it is read here, and by Arrow; and the columns that the compiled reader
    took."""
    part = partition(path, names, [each for each in dictionaries if each in names], group)
    fields = [each.with_type(CODES) if each.name in dictionaries else each for each in part.fields]
    taken = {} if part.places is None else columns_at(str(path), part.rows, part.places, fields)
    file = pq.ParquetFile(path, read_dictionary=list(dictionaries))
    arrows = file.read_row_group(group, columns=list(names)).select(names)
    return part.table(), arrows, set(taken)


def plain(found):
    """Without its dictionaries, and with days and times of years that Python has not."""

    def values(column):
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.cast(pa.utf8())
        elif pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
            column = column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
        return column.to_pylist()

    return dict(zip(found.column_names, map(values, found.columns), strict=True))


@settings(max_examples=150, deadline=None)
@given(
    rows=st.sampled_from([1, 7, 8, 9, 63, 64, 65, 1000, 3000]),
    seed=st.integers(0, 1000),
    missing=st.sampled_from([0, 0.01, 0.5, 1, 2]),
    nullable=st.booleans(),
    options=ANY_PAGES,
)
def test_any_pages(folder, rows, seed, missing, nullable, options):
    path = folder / "any.parquet"
    pq.write_table(table(rows, seed, missing, nullable or bool(missing)), path, **options)
    ours, arrows, taken = both(path)
    assert ours.schema.equals(arrows.schema)
    assert plain(ours) == plain(arrows)
    # A label's column that is not all in its dictionary is Arrow's.
    assert taken >= {*NAMES} - {"label"}
    if options["use_dictionary"] and options["dictionary_pagesize_limit"] == 1 << 20:
        assert "label" in taken


@settings(max_examples=150, deadline=None)
@given(
    rows=st.sampled_from([7, 64, 1000, 3000]),
    seed=st.integers(0, 1000),
    missing=st.sampled_from([0, 0.01, 0.5, 1, 2]),
    cuts=st.lists(st.integers(1, 2999), max_size=6, unique=True).map(sorted),
    beside=st.sampled_from([0.25, 1e9]),
    options=ANY_PAGES,
)
def test_slices_of_any_pages(folder, rows, seed, missing, cuts, beside, options):
    path = folder / "slices.parquet"
    written = table(rows, seed, missing)
    # A value that makes a header long: its statistics hold it twice.
    written = written.append_column("wide", pa.array(["w" * 700] * rows))
    pq.write_table(written, path, **options)
    names = (*NAMES, "wide")
    whole = partition(path, names, ["label"], 0)
    fields = [each.with_type(CODES) if each.name == "label" else each for each in whole.fields]
    edges = [0, *(cut for cut in cuts if cut < rows), rows]
    always = {*names} - {"label"}
    if options["use_dictionary"] and options["dictionary_pagesize_limit"] == 1 << 20:
        always.add("label")
    labelled = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_columns, "MOST_BESIDE", beside)
        for start, stop in pairwise(edges):
            part = replace(whole, start=start, stop=stop)
            taken = rows_at(part.file, rows, start, stop, part.places, fields)
            found, expected = part.table(), written.slice(start, stop - start)
            assert found.column_names == list(names)
            assert plain(found) == plain(expected)
            if beside > 1:
                assert taken.keys() >= always
                labelled.add("label" in taken)
    assert len(labelled) <= 1  # in all slices or in none


def test_a_slice_leaves_what_lies_around_it_alone(tmp_path, monkeypatch):
    """A row group need not be read from its beginning, nor other pages than the slice's."""
    path = tmp_path / "data.parquet"
    written = table(3000, 4, 0.1)
    pages = {"data_page_size": 1000, "write_batch_size": 10, "use_dictionary": False}
    pq.write_table(written, path, **pages)
    part = replace(partition(path, ("number", "text"), [], 0), start=1000, stop=2000)
    asked = []
    for name in ("read_range", "read_open"):
        read = getattr(parquet_columns, name)
        monkeypatch.setattr(
            parquet_columns,
            name,
            lambda file, *span, read=read: asked.append(span) or read(file, *span),
        )
    monkeypatch.setattr(parquet_groups, "_cursor", None)
    assert plain(part.table()) == plain(written.select(["number", "text"]).slice(1000, 1000))
    sizes = sorted(stop - start for start, stop in asked if stop - start > 512)
    chunks = pq.ParquetFile(path).metadata.row_group(0)
    assert 0 < sizes[-1] < max(chunks.column(at).total_compressed_size for at in (0, 3)) / 2
    asked.clear()
    replace(part, start=0, stop=1000).table()  # where the pages lie is known by now
    assert len(asked) <= 4


@pytest.mark.parametrize("threads", [1, 4])
def test_what_arrow_reads_of_one_slice_it_reads_of_all(tmp_path, monkeypatch, threads):
    """Labels whose dictionary is given up half-way, while texts of it outgrow their room: so
    nothing is kept that nobody asks for."""
    path, rows = tmp_path / "data.parquet", 40_000
    written = pa.table(
        {
            "number": np.arange(rows) / 3,
            "label": [f"v{row % 50 if row < rows // 2 else row}" for row in range(rows)],
            "text": ["t" * (5 if row < rows * 0.7 else 500) for row in range(rows)],
        }
    )
    options = {"dictionary_pagesize_limit": 4000, "data_page_size": 4000, "write_batch_size": 100}
    pq.write_table(written, path, use_dictionary=["label", "text"], **options)
    monkeypatch.setattr(parquet_columns, "MOST_BESIDE", 1e9)
    taken = {}

    def seen(file, rows, start, *more):
        found = rows_at(file, rows, start, *more)
        taken[start] = set(found)
        return found

    monkeypatch.setattr(parquet_groups, "rows_at", seen)
    types = {"number": "number", "label": "category", "text": "string"}
    source = open_source(path, types)
    parts = source.partitions(50_000)
    assert len(parts) > 8
    with ThreadPoolExecutor(threads) as pool:
        batches = list(pool.map(lambda part: part.read(), parts))
    for name in types:
        read = [value for batch in batches for value in batch[name].to_pylist()]
        assert read == written[name].to_pylist()
    assert all(each == {"number", "text"} for each in taken.values())
    of_it = {key[0]: cursor._ready for key, cursor in parquet_groups.kept_cursors._found.items()}
    assert of_it[parts[0].source] == []
    source.close()
    assert parts[0].source not in {key[0] for key in parquet_groups.kept_cursors._found}


def test_slices_beside_which_much_would_be_read_are_left_to_arrow(tmp_path):
    path, sizes = tmp_path / "data.parquet", {"data_page_size": 400, "write_batch_size": 10}
    pq.write_table(table(3000, 4, 0.1), path, use_dictionary=False, **sizes)
    whole = partition(path, ("number",), [], 0)
    given_ = whole.places, whole.fields
    assert rows_at(whole.file, 3000, 100, 150, *given_) == {}
    assert rows_at(whole.file, 3000, 100, 400, *given_) != {}
    # Pages of another number of rows than the row group is said to have.
    assert rows_at(whole.file, 2999, 100, 400, *given_) == {}
    pq.write_table(table(3000, 4, 0.1), path, **sizes)  # with a dictionary of most numbers
    whole = partition(path, ("number",), [], 0)
    assert rows_at(whole.file, 3000, 100, 400, whole.places, whole.fields) == {}


def test_slices_of_a_row_more_or_less_are_read_alike(tmp_path, monkeypatch):
    path, rows = tmp_path / "data.parquet", 3001
    pages = {"data_page_size": 400, "write_batch_size": 10, "use_dictionary": False}
    pq.write_table(table(rows, 4, 0), path, **pages)
    whole = partition(path, ("number",), [], 0)
    found = parquet_columns._Chunk(whole.file, whole.places.starts[0], whole.places.sizes[0])
    number = len(found._found().rows) - 1
    for size in (999.5, 1000.5):  # the rows of which a page is as much as it may be
        monkeypatch.setattr(parquet_columns, "MOST_BESIDE", rows / number / size)
        edges = [0, 1000, 2001, rows]
        given_ = [
            rows_at(whole.file, rows, *span, whole.places, whole.fields) != {}
            for span in pairwise(edges)
        ]
        assert given_ == [size < 1000] * 3


def test_a_column_that_is_refused_is_not_tried_again(tmp_path, monkeypatch):
    """Although a slice that another thread reads meanwhile is given."""
    path = tmp_path / "data.parquet"
    pq.write_table(table(3000, 4, 0), path)
    whole = partition(path, ("number",), [], 0)
    monkeypatch.setattr(parquet_columns, "MOST_BESIDE", 1e9)
    read, calls = parquet_columns._column, []

    def given_(start):
        return rows_at(whole.file, 3000, start, start + 1000, whole.places, whole.fields) != {}

    def column(*which):
        calls.append(which)
        if len(calls) == 2:
            return None
        if len(calls) == 1:
            assert not given_(1000)
        return read(*which)

    monkeypatch.setattr(parquet_columns, "_column", column)
    assert given_(0)
    assert not given_(2000)
    assert len(calls) == 2


def test_bits_of_numbers_are_kept(tmp_path):
    words = np.array([0, 1, 2, 1 << 63, 0x7FF0000000000001, 0xFFF8000000000123] * 9, np.uint64)
    path = tmp_path / "bits.parquet"
    for by_dictionary in (False, True):
        pq.write_table(pa.table({"x": words.view(np.float64)}), path, use_dictionary=by_dictionary)
        ours, _, taken = both(path, ("x",), ())
        assert taken == {"x"}
        assert np.array_equal(ours.column("x").to_numpy().view(np.uint64), words)


def test_other_columns_and_files_are_left_to_arrow(tmp_path):
    path = tmp_path / "other.parquet"
    numbers = pa.array([1.5, None, 2.5])
    others = {
        "half": numbers.cast(pa.float16()),
        "short": pa.array([1, 2, None], pa.int16()),
        "positive": pa.array([1, 2, None], pa.uint32()),
        "large": pa.array(["a", None, "b"], pa.large_utf8()),
        "truth": pa.array([True, None, False]),
        "time": pa.array([1, 2, None], pa.timestamp("us")),  # of 96 bits, as Spark writes them
        "clock": pa.array([1, 2, None], pa.time64("us")),
    }
    pq.write_table(pa.table({**others, "x": numbers}), path, use_deprecated_int96_timestamps=True)
    names = (*others, "x")
    ours, arrows, taken = both(path, names, ())
    assert taken == {"x"}
    assert ours.equals(arrows)

    pq.write_table(pa.table({"x": numbers, "inside": [{"y": 1}, {"y": 2}, None]}), path)
    assert both(path, ("x",), ())[2] == {"x"}
    pq.write_table(pa.table({"inside": [{"y": 1, "z": 2}] * 3, "x": numbers}), path)
    ours, arrows, taken = both(path, ("x",), ())
    assert taken == set()
    assert ours.equals(arrows)
    for options in (
        {"compression": "zstd"},
        {"use_byte_stream_split": ["x"], "use_dictionary": False},
    ):
        pq.write_table(pa.table({"x": numbers}), path, **options)
        ours, arrows, taken = both(path, ("x",), ())
        assert taken == set()
        assert ours.equals(arrows)


def test_texts_that_a_dictionary_makes_many_times_as_long(tmp_path):
    """More than there is room for at first."""
    path = tmp_path / "long.parquet"
    pq.write_table(pa.table({"text": ["long " * 1000] * 100 + ["short"]}), path)
    ours, arrows, taken = both(path, ("text",), ())
    assert taken == {"text"}
    assert ours.equals(arrows)


def test_some_columns_far_apart(tmp_path):
    path = tmp_path / "apart.parquet"
    pq.write_table(table(3000, 1, 0.1), path, row_group_size=1000)
    for names in (("number",), ("label", "number"), NAMES[::-1]):
        ours, arrows, taken = both(path, names, group=2)
        assert ours.column_names == list(names)
        assert plain(ours) == plain(arrows)
        assert "number" in taken


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["snappy", "none"])
def test_damage_is_told_or_changes_no_more_than_for_arrow(tmp_path, version, compression):
    """One byte of a column is another: what is read is what Arrow reads, or what was written."""
    path, dice = tmp_path / "damaged.parquet", random.Random(5)
    given_ = table(300, 5, 0.2)
    options = {"compression": compression, "data_page_version": version}
    pq.write_table(given_, path, **options, data_page_size=500)
    whole, metadata = path.read_bytes(), pq.ParquetFile(path).metadata.row_group(0)
    told = 0
    for _ in range(600):
        number = dice.randrange(len(NAMES))
        chunk = metadata.column(number)
        start = min(chunk.data_page_offset, chunk.dictionary_page_offset or 1 << 40)
        place = start + dice.randrange(min(chunk.total_compressed_size, dice.choice([60, 1 << 20])))
        damaged = bytearray(whole)
        damaged[place] = (damaged[place] + dice.randrange(1, 256)) % 256
        path.write_bytes(damaged)
        names = (NAMES[number],)
        arrows = outcome(path, names, read_by_arrow)
        for read in (read_here, read_in_slices):
            ours = outcome(path, names, read)
            if arrows == "damaged":
                # Two labels that have become one, Arrow refuses in a dictionary and reads as texts.
                as_texts = outcome(path, names, read_texts_by_arrow)
                assert ours in ("damaged", repr(plain(given_.select(names))), as_texts)
                told += ours == "damaged"
            else:
                assert ours == arrows
    assert told > 100


def read_here(path, names):
    return partition(path, names, {"label"} & set(names), 0).table()


def read_in_slices(path, names):
    whole = partition(path, names, {"label"} & set(names), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_columns, "MOST_BESIDE", 1e9)
        cut = [replace(whole, start=start, stop=start + 100) for start in range(0, 300, 100)]
        parts = [part.table() for part in cut]
    return pa.concat_tables(part.unify_dictionaries() for part in parts)


def read_texts_by_arrow(path, names):
    return read_by_arrow(path, names, dictionaries=())


def read_by_arrow(path, names, dictionaries=("label",)):
    file = pq.ParquetFile(path, read_dictionary=list(dictionaries))
    found = file.read_row_group(0, columns=list(names))
    found.validate(full=True)
    if found.num_rows != 300:
        raise pa.ArrowInvalid("rows are lost")
    return found


def outcome(path, names, read):
    try:
        return repr(plain(read(path, names)))
    except (pa.ArrowException, OSError, DataError):
        return "damaged"


def test_buffers_that_are_too_short_are_refused():
    compiled = parquet_columns.compiled
    for function, room in (("words", 8), ("short_words", 4), ("codes", 4)):
        read = getattr(compiled, function)
        with pytest.raises(ValueError, match="too short"):
            read([(b"", False, False, 2)], bytearray(room), None)
        with pytest.raises(ValueError, match="too short"):
            read([(b"", False, True, 9)], bytearray(9 * room), bytearray(1))
        with pytest.raises(ValueError, match="too short"):
            read([(b"", False, False, -1)], bytearray(room), None)
        with pytest.raises(ValueError, match="too short"):
            read([(b"", False, True, 1)], bytearray(room), None)
        with pytest.raises(TypeError):
            read([(b"", False, False, 0), ("", False, False, 0)], bytearray(room), None)
        assert read([(b"", False, False, 1)], bytearray(room), None) is None
        assert read([(b"", False, False, 0)], bytearray(room), None) is not None
    with pytest.raises(ValueError, match="too short"):
        compiled.texts([(b"", False, False, 2)], bytearray(8), None, bytearray(8))


def test_partitions_are_read_by_it_and_a_damaged_one_is_told(tmp_path, monkeypatch):
    path = tmp_path / "data.parquet"
    pq.write_table(table(3000, 2, 0.1), path)
    raw = {"number": "number", "short": "number", "text": "string", "label": "category"}

    def rows():
        source = open_source(path, raw)
        return [part.read() for part in source.partitions(1 << 30)]

    ours = rows()
    monkeypatch.setattr(parquet_columns, "compiled", None)
    assert [plain(each) for each in rows()] == [plain(each) for each in ours]
    monkeypatch.undo()
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    damaged = bytearray(path.read_bytes())
    start = min(chunk.data_page_offset, chunk.dictionary_page_offset or 1 << 40)
    damaged[start : start + 30] = b"\xff" * 30
    path.write_bytes(damaged)
    with pytest.raises(DataError, match="row group 0 is damaged"):
        rows()


def small_files(folder, options):
    folder.mkdir()
    for number in range(8):
        missing = (0, 0.3, 1)[number % 3]
        pq.write_table(
            table(1999, number, missing),
            folder / f"{number}.parquet",
            row_group_size=700,
            **options,
        )


@pytest.mark.parametrize("options", [{}, {"data_page_version": "2.0", "compression": "none"}])
def test_small_row_groups_are_read_at_once(tmp_path, monkeypatch, options):
    monkeypatch.undo()
    small_files(tmp_path / "data", options)
    raw = {"number": "number", "whole": "number", "text": "string", "label": "category"}

    def rows():
        parts = open_source(tmp_path / "data", raw).partitions(1 << 30)
        assert [type(part) for part in parts] == [JoinedGroups]
        copy = pickle.loads(pickle.dumps(parts[0]))  # noqa: S301 - our own
        return parts[0]._at_once(), copy.read()

    at_once, ours = rows()
    assert at_once.num_rows == ours.num_rows == 8 * 1999
    monkeypatch.setattr(parquet_columns, "compiled", None)
    nothing, arrows = rows()
    assert nothing is None
    assert plain(ours) == plain(arrows)
    assert ours.schema.equals(arrows.schema)


def test_of_small_row_groups_the_damaged_one_is_told(tmp_path, monkeypatch):
    monkeypatch.undo()
    small_files(tmp_path / "data", {"compression": "none"})
    path = tmp_path / "data" / "4.parquet"
    text = pq.ParquetFile(path).metadata.row_group(1).column(3)
    damaged = bytearray(path.read_bytes())
    start = min(text.data_page_offset, text.dictionary_page_offset or 1 << 40)
    place = damaged.index("é".encode(), start, start + text.total_compressed_size)
    damaged[place] = 0xFF
    path.write_bytes(damaged)
    (part,) = open_source(tmp_path / "data", {"text": "string"}).partitions(1 << 30)
    with pytest.raises(DataError, match=r"4\.parquet.*row group 1 is damaged"):
        part.read()
    path.write_bytes(damaged[:-1])
    with pytest.raises(DataError, match=r"4\.parquet.*changed while it was being read"):
        part.read()


def test_files_where_nothing_and_something_may_be_missing(tmp_path):
    """Arrow does not join their tables."""
    (tmp_path / "data").mkdir()
    for number in range(4):
        pq.write_table(table(3000, number, 0, number != 2), tmp_path / "data" / f"{number}.parquet")
    parts = open_source(tmp_path / "data", {"label": "category"}).partitions(1 << 30)
    found = [row for part in parts for row in part.read()["label"].cast(pa.utf8()).to_pylist()]
    assert found == [
        row for number in range(4) for row in table(3000, number, 0)["label"].to_pylist()
    ]


def test_damage_of_a_footer_is_told_or_changes_no_more_than_for_arrow(tmp_path, monkeypatch):
    """One byte of what the second file says of itself is another. That is read by the compiled
    reader in either case: Arrow, asked for the name of an encoding that there is not, ends the
    process."""
    (tmp_path / "data").mkdir()
    paths = [tmp_path / "data" / f"{number}.parquet" for number in range(2)]
    for number, path in enumerate(paths):
        pq.write_table(table(300, number, 0.2), path, row_group_size=150)
    raw = {"number": "number", "text": "string", "label": "category"}

    def rows(compiled):
        monkeypatch.setattr(parquet_columns, "compiled", compiled)
        try:
            parts = open_source(tmp_path / "data", raw).partitions(1 << 20)
            return repr([row for part in parts for row in part.read().to_pylist()])
        except DataError:
            return "told"

    compiled, dice, told = parquet_columns.compiled, random.Random(8), 0
    whole, sound = paths[1].read_bytes(), rows(compiled)
    length = int.from_bytes(whole[-8:-4], "little")
    for _ in range(300):
        damaged = bytearray(whole)
        place = len(whole) - 1 - dice.randrange(length + 8)
        damaged[place] = (damaged[place] + dice.randrange(1, 256)) % 256
        paths[1].write_bytes(damaged)
        ours, arrows = rows(compiled), rows(None)
        assert ours == arrows or (arrows == "told" and ours == sound)
        told += ours == "told"
    assert told > 50


def test_a_file_without_row_groups_is_empty(tmp_path):
    rows = table(30, 1, 0.2)
    pq.ParquetWriter(tmp_path / "0.parquet", rows.schema).close()
    assert footer_of(DataFile.at(tmp_path / "0.parquet", "0"), len(NAMES)).groups == []
    with pytest.raises(DataError, match="there are no rows"):
        open_source(tmp_path / "0.parquet", {"number": "number"})
    pq.write_table(rows, tmp_path / "1.parquet")
    (part,) = open_source(tmp_path, {"number": "number"}).partitions(1 << 20)
    assert part.read()["number"].to_pylist() == rows["number"].to_pylist()


def test_footers_of_every_length(tmp_path):
    path = tmp_path / "data.parquet"
    for columns in (1, 40, 400):
        columns_ = {f"column {each}": [1.5, None, 2.5] for each in range(columns)}
        options = {1: {}, 40: {"compression": "zstd"}, 400: {"compression": "none"}}[columns]
        delta = {} if columns > 1 else {"column_encoding": {"column 0": "BYTE_STREAM_SPLIT"}}
        pq.write_table(
            pa.table(columns_), path, row_group_size=2, use_dictionary=not delta, **options, **delta
        )
        file = DataFile.at(path, "data")
        found = footer_of(file, columns)
        assert [
            [group.of(leaf) for leaf in range(columns)] for group in found.groups
        ] == facts_of_arrow(path)
        assert footer_of(file, columns + 1) is None
    assert path.stat().st_size > 2 * parquet_footers.TAIL
    whole = path.read_bytes()
    for text in (b"", b"PAR1", whole[:-1], whole[-2000:], b"\xff\xff\xff\xffPAR1"):
        path.write_bytes(text)
        assert footer_of(DataFile.at(path, "data"), 400) is None


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("cut", [1 << 24, 1 << 14, None])
def test_a_page_that_is_not_what_its_checksum_says(tmp_path, version, compression, cut):
    """cut: bytes of a partition; None: several files, whose row groups are joined."""
    path = tmp_path / "data.parquet"
    options = {"compression": compression, "data_page_version": version, "data_page_size": 4096}
    pq.write_table(table(3000, 1, 0.1), path, write_page_checksum=True, **options)
    good = path.read_bytes()
    metadata = pq.ParquetFile(path).metadata.row_group(0)
    if cut is None:
        (tmp_path / "other.parquet").write_bytes(good)
    dice = random.Random(1)
    raw = dict.fromkeys(NAMES, "category") | {"text": "string", "number": "number"}

    def read():
        source = open_source(path if cut else tmp_path, raw)
        return [part.read() for part in source.partitions(cut or 1 << 24)]

    whole = pa.Table.from_batches(read()).num_rows
    assert whole == (3000 if cut else 6000)
    for number in range(metadata.num_columns):
        column = metadata.column(number)
        start = column.dictionary_page_offset or column.data_page_offset
        # Not of the header, which is at the start of the chunk, and has no checksum.
        size = column.total_compressed_size
        at = start + dice.randrange(size * 9 // 10, size)
        damaged = bytearray(good)
        damaged[at] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"data\.parquet.* damaged"):
            read()
