"""Fit and encode: the same bytes whatever the partitions, threads and format; what was fitted,
split and filled."""

import hashlib
import logging
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distcore_core.contracts import (
    CACHE_FORMAT,
    PROCESSOR,
    SPLITS,
    Block,
    PluginRef,
    ShardPlan,
    SourceBase,
)
from distcore_core.errors import CacheError, DataError, UserError
from distcore_core.progress import Progress
from distcore_core.registry.manager import Plugins
from distcore_data.blame import BadRow
from distcore_data.cache import CacheBuilder, CacheReader, manifest
from distcore_data.cache.files import CacheFiles
from distcore_data.cache.manifest import encode_metadata, parse_metadata
from distcore_data.dataset import JoinedSource
from distcore_data.encoding import shards
from distcore_data.encoding.fit import encode_again, fit_and_encode, plan_shards
from distcore_data.encoding.sampling import EVERY_ROW, Sampling
from distcore_data.encoding.splits import GivenSplitter, make_splitter
from distcore_data.encoding.stream import encode_stream
from distcore_data.features import Features
from distcore_data.json_text import in_line
from distcore_data.sources.registry import open_source
from distcore_data.stores.local import LocalStore
from distcore_testing import data
from distcore_testing.counting import calls

PLUGINS = Plugins()
PARQUET = PluginRef(kind="caches", name="parquet", options={})
SMALL = 1024
"""Rows of a shard in these tests, so that a small table has several."""


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    for module in (sys.modules["distcore_data.encoding.fit"], manifest):
        monkeypatch.setattr(module, "SHARD_ROWS", SMALL)
    monkeypatch.setattr("distcore_data.cache.builder.SHARD_ROWS", SMALL)
    monkeypatch.setattr("distcore_data.cache.reader.SHARD_ROWS", SMALL)


def feature(name, type_, role="input", **preprocessing):
    return {
        "name": name,
        "type": type_,
        "column": name,
        "role": role,
        "options": {"preprocessing": preprocessing} if preprocessing else {},
    }


USUAL = [
    feature("x0", "number", normalization="zscore", missing_value_strategy="fill_with_mean"),
    feature("x1", "number", missing_value_strategy="ffill"),
    feature("colour", "category"),
    feature("words", "text"),
    feature("tags", "set"),
    feature("y", "binary", "output"),
]


class Cut(SourceBase):
    """A source whose partitions are cut at given rows: what engines with partitions of their own
    do."""

    def __init__(self, table, raw, cuts):
        self.source = open_source(table, raw)
        self.whole = self.source.partitions(1 << 40)[0].read()
        self.cuts = [0, *sorted(min(cut, self.whole.num_rows) for cut in cuts), self.whole.num_rows]

    def digest(self):
        return self.source.digest()

    def partitions(self, target_bytes):
        return [
            Piece(self.whole.slice(low, high - low))
            for low, high in zip(self.cuts, self.cuts[1:], strict=False)
        ]

    def check_unchanged(self, content=True):
        pass

    def close(self):
        self.source.close()


class Tiles(Cut):
    """The same, and each partition cut into tiles of so many columns."""

    def __init__(self, table, raw, cuts, width):
        super().__init__(table, raw, cuts)
        self.width = width

    def tiles(self, target_bytes):
        names = self.whole.schema.names
        groups = [names[at : at + self.width] for at in range(0, len(names), self.width)]
        return [
            [Piece(part.batch.select(columns)) for columns in groups]
            for part in self.partitions(target_bytes)
        ]


class Piece:
    def __init__(self, batch):
        self.batch = batch

    def read(self):
        return self.batch


def build(folder, source, specifications=USUAL, split=None, threads=2, splitter=None, **options):
    """(what was fitted, an open cache)."""
    features = Features._make(specifications, PLUGINS)
    raw = features.raw()
    splitter = splitter or make_splitter(split or {"type": "random"}, 42)
    for column, how in splitter.needs.items():
        raw.setdefault(column, how)
    if not hasattr(source, "partitions"):
        source = open_source(source, raw)
    processor = PLUGINS.make(PROCESSOR, "local", {"parallelism": threads})
    folder.mkdir()
    builder = CacheBuilder(folder, "key", PARQUET, PLUGINS)
    fitted = fit_and_encode(source, processor, features, splitter, builder, **options)
    assert not list(builder.scratch.iterdir())
    builder.finish(
        fitted.columns.values(),
        fitted.metadata,
        {"digest": "d", "rows": fitted.source_rows},
        fitted.rows,
    )
    files = CacheFiles(LocalStore(folder), "")
    return fitted, CacheReader(
        files, files.manifest("key"), PLUGINS.make(CACHE_FORMAT, "parquet", {})
    )


def test_a_processor_that_cannot_cut_the_source_is_closed(tmp_path):
    """The cluster that it had connected to, or started, stayed."""
    done = []

    class Failing:
        def scan(self, source, scratch):
            done.append("scan")
            raise OSError("no room")

        def close(self):
            done.append("close")

    features = Features._make(USUAL, PLUGINS)
    builder = CacheBuilder(tmp_path, "key", PARQUET, PLUGINS)
    with pytest.raises(OSError, match="no room"):
        fit_and_encode(None, Failing(), features, None, builder)
    with pytest.raises(OSError, match="no room"):
        encode_again(
            None, Failing(), features, None, builder, {}, (), sampling=EVERY_ROW, progress=None
        )
    assert done == ["scan", "close"] * 2


def digests(folder):
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    ]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


@pytest.fixture(scope="module")
def table():
    return data.table(3000)


@pytest.fixture
def reference(table, tmp_path):
    fitted, _ = build(tmp_path / "reference", table, threads=1)
    return fitted, digests(tmp_path / "reference")


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cuts=st.lists(st.integers(0, 3000), max_size=12),
    width=st.none() | st.integers(1, len(USUAL)),
    threads=st.integers(1, 4),
)
def test_any_partitions_and_threads_give_the_same_bytes_and_statistics(
    cuts, width, threads, table, reference, tmp_path_factory
):
    folder, progress = tmp_path_factory.mktemp("cut") / "cache", Progress()
    raw = Features._make(USUAL, PLUGINS).raw()
    source = Cut(table, raw, cuts) if width is None else Tiles(table, raw, cuts, width)
    read = []
    began = progress.begin
    progress.begin = lambda stage, total: (read.append(progress.done), began(stage, total))
    fitted, _ = build(folder, source, threads=threads, progress=progress)
    assert read == [0, 3000]
    assert in_line(fitted.metadata, False) == in_line(reference[0].metadata, False)
    assert digests(folder) == reference[1]


@pytest.mark.parametrize("split", ["stratify", "datetime", "fixed", "hash"])
def test_every_split_is_the_same_for_any_partitions(split, table, tmp_path):
    days = pa.array([f"2024-{1 + row * 7 % 12:02d}-{1 + row % 28:02d}" for row in range(3000)])
    table = table.append_column("day", days).append_column(
        "part", pa.array([str(row % 3) for row in range(3000)])
    )
    column = {"stratify": "colour", "datetime": "day", "fixed": "part", "hash": "colour"}[split]
    options = {"type": split, "column": column}
    raw = {**Features._make(USUAL, PLUGINS).raw(), column: "category"}
    one, _ = build(tmp_path / "one", table, split=options, threads=1)
    two, _ = build(tmp_path / "two", Cut(table, raw, [1, 5, 1023, 1024, 2500]), split=options)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert one.rows == two.rows


def test_features_keep_nothing_of_the_rows(table, tmp_path, monkeypatch):
    """What they keep for the next rows lies in files of the scratch folder, which is gone."""
    features = Features._make(USUAL, PLUGINS)
    before = [dict(vars(each)) for each in features]
    monkeypatch.setattr(Features, "_make", staticmethod(lambda *given: features))
    build(tmp_path / "cache", table)
    assert [vars(each) for each in features] == before


def test_csv_parquet_and_frame_give_the_same_bytes(table, reference, tmp_path):
    pyarrow.csv.write_csv(table, tmp_path / "data.csv")
    pyarrow.parquet.write_table(table, tmp_path / "data.parquet", row_group_size=777)
    for name in ("data.csv", "data.parquet"):
        build(tmp_path / name.replace(".", "_"), str(tmp_path / name))
        assert digests(tmp_path / name.replace(".", "_")) == reference[1]


def test_shards_hold_the_rows_in_order_and_the_map_says_where_each_is(table, tmp_path):
    fitted, reader = build(tmp_path / "cache", table)
    assert fitted.source_rows == 3000
    assert sum(fitted.rows.values()) == 3000
    numbers = [reader.row_numbers(split) for split in SPLITS]
    assert sorted(np.concatenate(numbers).tolist()) == list(range(3000))
    x0 = table["x0"].combine_chunks()
    mean, std = pc.mean(x0).as_py(), pc.stddev(pc.fill_null(x0, pc.mean(x0)), ddof=1).as_py()
    for split, rows in zip(SPLITS, numbers, strict=True):
        assert (np.diff(rows) > 0).all()
        assert len(rows) == fitted.rows[split]
        expected = (np.array(pc.fill_null(x0, mean))[rows] - mean) / std
        found = reader.read(split, 0, len(rows)).column("x0").to_numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert [plan.stop for plan in plan_shards(2500)] == [1024, 2048, 2500]


def test_rows_that_miss_a_target_are_dropped_but_count_in_other_columns(tmp_path, caplog):
    rows = {"x": [1.0, 2.0, 3.0, 100.0, None] * 300, "t": [1.0, 2.0, 3.0, None, 4.0] * 300}
    spec = [
        feature("x", "number", missing_value_strategy="fill_with_mean"),
        feature("t", "number", "output"),
    ]
    with caplog.at_level(logging.WARNING):
        fitted, reader = build(tmp_path / "cache", rows, spec)
    assert sum(fitted.rows.values()) == 1200
    assert "300 of 1500 rows were dropped" in caplog.text
    assert caplog.text.rstrip().endswith("drop_row: 't'.")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        part, _ = build(tmp_path / "sample", rows, spec, sampling=Sampling(42, ratio=0.5))
    sample = Sampling(42, ratio=0.5).of(1500)
    picked = sum(sample.picked(1500)) if sample is not None else 1500
    assert f"{picked - sum(part.rows.values())} of {picked} rows were dropped" in caplog.text
    assert fitted.metadata["x"]["mean"] == 26.5
    numbers = np.concatenate([reader.row_numbers(split) for split in SPLITS])
    assert not (numbers % 5 == 3).any()
    assert set(reader.read("train", 0, fitted.rows["train"]).column("t").to_pylist()) == {
        1.0,
        2.0,
        3.0,
        4.0,
    }


def test_neighbours_fill_across_shards_and_statistics_are_of_the_filled_column(tmp_path):
    column = [None, None, 5.0, *([None] * 2000), 7.0, *([None] * 997)]
    spec = [
        feature("x", "number", missing_value_strategy="ffill", normalization=None),
        feature("t", "number", "output"),
    ]
    fitted, reader = build(
        tmp_path / "cache", {"x": column, "t": list(map(float, range(3001)))}, spec
    )
    assert fitted.metadata["x"]["count"] == 3001
    for split in SPLITS:
        found = reader.read(split, 0, fitted.rows[split]).column("x").to_pylist()
        assert found == [5.0 if row < 2003 else 7.0 for row in reader.row_numbers(split)]


def test_a_sample_is_the_same_rows_for_any_partitions_and_alone_is_fitted(table, tmp_path):
    raw = Features._make(USUAL, PLUGINS).raw()
    one, reader = build(tmp_path / "one", table, sampling=Sampling(42, ratio=0.25))
    build(tmp_path / "two", Cut(table, raw, [100, 2000]), sampling=Sampling(42, ratio=0.25))
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    numbers = np.concatenate([reader.row_numbers(split) for split in SPLITS])
    assert 600 < len(numbers) < 900
    assert sum(one.metadata["colour"]["counts"]) == len(numbers)
    sized, _ = build(tmp_path / "three", table, sampling=Sampling(42, size=750))
    assert sized.rows == one.rows


def test_given_sets_stay_what_they_are(table, tmp_path):
    raw = Features._make(USUAL, PLUGINS).raw()
    parts = [(0, open_source(table.slice(0, 2000), raw)), (2, open_source(table.slice(2000), raw))]
    source = JoinedSource(parts)
    fitted, reader = build(
        tmp_path / "cache", source, splitter=GivenSplitter(source.partition_splits)
    )
    assert fitted.rows == {"train": 2000, "validation": 0, "test": 1000}
    assert reader.row_numbers("test").tolist() == list(range(2000, 3000))


def test_progress_counts_rows_twice(table, tmp_path):
    progress = Progress()
    build(tmp_path / "cache", table, progress=progress)
    progress.end()
    assert [each[:2] for each in progress.stages_finished] == [("read", 3000), ("encode", 3000)]


# ------------------------------------------------------------------ what cannot be fitted


def test_a_column_without_values_names_dataset_and_column(tmp_path):
    rows = {"x": pa.nulls(10, pa.float64()), "t": [1.0, 2.0] * 5}
    spec = [feature("x", "number"), feature("t", "number", "output")]
    with pytest.raises(DataError, match=r"^people\.csv: .*'x'"):
        build(tmp_path / "cache", pa.table(rows), spec, dataset="people.csv")


def test_a_target_of_one_class_names_dataset_and_column(tmp_path):
    rows = {"x": list(map(float, range(10))), "t": ["same"] * 10}
    spec = [feature("x", "number"), feature("t", "category", "output")]
    with pytest.raises(DataError, match=r"^people\.csv: .*'t'.*one class"):
        build(tmp_path / "cache", rows, spec, dataset="people.csv")


def test_a_dataset_where_every_row_is_dropped_says_so(tmp_path):
    rows = {"x": [1.0, None] * 5, "t": [None, 1.0] * 5}
    spec = [
        feature("x", "number", missing_value_strategy="drop_row"),
        feature("t", "number", "output"),
    ]
    with pytest.raises(DataError, match=r"No row of people\.csv is left.*drop_row"):
        build(tmp_path / "cache", rows, spec, dataset="people.csv")


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
def test_metadata_are_kept_once_while_shards_are_written(
    table, tmp_path, monkeypatch, inline_bytes
):
    threads = []

    def encode(metadata):
        threads.append(threading.current_thread())
        return encode_metadata(metadata)

    monkeypatch.setattr("distcore_data.cache.builder.encode_metadata", encode)
    monkeypatch.setattr("distcore_data.cache.builder.INLINE_BYTES", inline_bytes)
    fitted, cache = build(tmp_path / "cache", table)
    large = tmp_path / "cache" / "metadata" / "00000.json"
    assert large.exists() == (not inline_bytes)
    kept = cache.metadata if inline_bytes else parse_metadata(large.read_bytes())
    assert kept == fitted.metadata
    assert [each is threading.current_thread() for each in threads] == [False]
    assert not threads[0].is_alive()


def test_metadata_that_cannot_be_kept_are_told_of_when_the_rest_is_written(
    table, tmp_path, monkeypatch
):
    monkeypatch.setattr("distcore_data.cache.manifest.MOST_METADATA", 100)
    with pytest.raises(CacheError, match="cannot be kept"):
        build(tmp_path / "cache", table)
    assert list((tmp_path / "cache").glob("train/*"))


def test_a_split_that_leaves_nothing_to_train_on_says_so(table, tmp_path):
    with pytest.raises(
        UserError, match=r"no row of the dataset for training \(0 train, \d+ validation, \d+ test\)"
    ):
        build(tmp_path / "cache", table, split={"type": "random", "probabilities": [0, 0.5, 0.5]})


def test_a_row_that_cannot_be_read_leaves_nothing_behind(tmp_path):
    (tmp_path / "bad.csv").write_text("x,t\n" + "1.5,2\n" * 500 + "oops,2\n")
    spec = [feature("x", "number"), feature("t", "number", "output")]
    with pytest.raises(DataError, match=r"bad\.csv, line 502, column 'x'"):
        build(tmp_path / "cache", str(tmp_path / "bad.csv"), spec)
    assert not list((tmp_path / "cache" / "scratch").iterdir())


class Odd:
    """A feature that refuses odd numbers, in statistics and in codes."""

    name, missing = "x", "drop_row"

    def partial(self, values):
        return self.encode(values, {})

    def encode(self, values, metadata):
        if any(value % 2 for value in values.drop_null().to_pylist()):
            raise DataError("it is odd")
        return values


@pytest.mark.parametrize("bad", [1, 4, 8])
def test_the_row_that_is_refused_is_told_by_its_number_in_the_dataset(bad):
    """Whatever block it came in, and whichever rows before it were dropped."""
    values = [None, 0, 2, 4, None, 6, 8, None, 10, 12]
    values[bad] = 7
    column = pa.array(values)
    blocks = [
        Block(index=index, start=100 + start, table=pa.record_batch({"c": column[start:stop]}))
        for index, (start, stop) in enumerate([(0, 3), (3, 7), (7, 10)])
    ]
    bound = shards.Bound(Odd(), "c")
    shard = shards.Recipe((bound,)).open(blocks, ShardPlan(index=0, start=100, stop=110))
    told = f"Row {100 + bad} .the first is 0.: it is odd"
    with pytest.raises(BadRow, match=told):
        shard.encoded(bound, {}, {})
    statistics = shards.BlockStatistics([bound], "c", None)
    with pytest.raises(BadRow, match=told):
        [statistics(block) for block in blocks]


# ------------------------------------------------------------------ new data


def test_new_data_is_encoded_like_the_fitted_rows_in_order(table, tmp_path):
    fitted, reader = build(tmp_path / "cache", table)
    features = Features._make(USUAL, PLUGINS).fitted(fitted.metadata)
    raw = features.raw()
    batches = list(encode_stream(Cut(table, raw, [7, 7, 1500, 2999]), features))
    assert [start for start, _ in batches] == [0, 7, 1500, 2999]
    whole = pa.Table.from_batches([batch for _, batch in batches])
    for split in SPLITS:
        numbers = reader.row_numbers(split)
        stored = reader.read(split, 0, len(numbers))
        for name in stored.schema.names:
            assert (
                whole[name].take(pa.array(numbers)).to_pylist() == stored.column(name).to_pylist()
            )


def test_prediction_needs_the_inputs_alone_and_says_which_rows_are_left_out(tmp_path, caplog):
    spec = [
        feature("x", "number", missing_value_strategy="drop_row"),
        feature("t", "number", "output"),
    ]
    rows = {"x": [1.0, 2.0, None, 3.0] * 5, "t": [1.0, 2.0, 3.0, 4.0] * 5}
    fitted, _ = build(tmp_path / "cache", rows, spec)
    features = Features._make(spec, PLUGINS).fitted(fitted.metadata)
    stream = encode_stream(open_source({"x": rows["x"]}, {"x": "number"}), features, ("input",))
    with caplog.at_level(logging.WARNING):
        batches = [batch for _, batch in stream]
    assert [batch.schema.names for batch in batches] == [["x"]]
    assert sum(batch.num_rows for batch in batches) == 15
    assert stream.rows == 20
    assert stream.dropped.tolist() == [2, 6, 10, 14, 18]
    assert "5 of 20 rows were left out" in caplog.text


def test_bfill_in_new_data_looks_ahead_over_partitions(tmp_path):
    spec = [
        feature("x", "number", missing_value_strategy="bfill", normalization=None),
        feature("t", "number", "output"),
    ]
    fitted, _ = build(tmp_path / "cache", {"x": [1.0, 2.0] * 10, "t": [1.0, 2.0] * 10}, spec)
    features = Features._make(spec, PLUGINS).fitted(fitted.metadata)
    new = {"x": [1.0, None, None, None, 9.0, None], "t": [0.0] * 6}
    stream = encode_stream(Cut(new, {"x": "number", "t": "number"}, [1, 2, 3]), features)
    assert [value for _, batch in stream for value in batch.column("x").to_pylist()] == [
        1.0,
        9.0,
        9.0,
        9.0,
        9.0,
        9.0,
    ]


def test_the_functions_of_a_shard_pickle(table, tmp_path):
    """Engines with processes send them there."""
    import pickle

    features = Features._make(USUAL, PLUGINS)
    bound = tuple(shards.Bound(each, each.name) for each in features)
    statistics = pickle.loads(pickle.dumps(shards.BlockStatistics(bound, "x0", Progress())))  # noqa: S301
    block = Cut(table, features.raw(), []).partitions(1)[0].read()
    states = statistics(shards.Block(index=0, start=None, table=block))
    assert set(states) == {each["name"] for each in USUAL}
    merged = pickle.loads(pickle.dumps(shards.merge_states(bound)))(states, states)  # noqa: S301
    assert merged["x0"].moments.count == 2 * states["x0"].moments.count


@pytest.mark.parametrize("stated", ["data", "distribution", None])
def test_a_process_with_another_release_of_a_plugin_encodes_nothing(table, stated):
    """Its shards would lie in silence among those of the release that the cache is named by."""
    import pickle

    features = Features._make(USUAL, PLUGINS)
    other = {stated: "other"} if stated else {}
    there = {name: replace(each, **other) for name, each in features.encoders.items()}
    by, bound = shards.EncodedBy(there), tuple(shards.Bound(each, each.name) for each in features)
    made = shards.BlockStatistics(bound, "x0", Progress(), by), shards.Recipe(bound, None, by)
    block = Cut(table, features.raw(), []).partitions(1)[0].read()
    plan = shards.ShardPlan(index=0, start=0, stop=block.num_rows)

    def work(statistics, recipe):
        yield lambda: statistics(shards.Block(index=0, start=None, table=block))
        yield lambda: recipe.open([shards.Block(index=0, start=0, table=block)], plan)

    for call in work(*made):
        call()  # where they were made nobody asks
    for call in work(*pickle.loads(pickle.dumps(made))):  # noqa: S301
        if stated is None:
            call()
            continue
        with pytest.raises(UserError, match=r"is encoded by .*other.* and otherwise by .* Install"):
            call()


def test_the_calls_of_one_more_column_do_not_grow_with_their_number(tmp_path):
    def of(columns):
        names = [f"x{number}" for number in range(columns)]
        table = pa.table({**{name: [1.0, 2.0, 3.5] for name in names}, "y": [True, False, True]})
        features = [*(feature(name, "number") for name in names), feature("y", "binary", "output")]
        return calls(lambda: build(tmp_path / f"{columns}", table, features))

    of(1)  # what is looked up once a process
    # Far enough apart that a few calls more, such as those of the collector of garbage, are nothing.
    few, more, most = of(10), of(110), of(510)
    assert (most - more) / 400 <= 1.05 * (more - few) / 100


def test_reading_fitting_and_writing_import_neither_pandas_nor_torch(tmp_path):
    """pyarrow imports pandas for many a conversion: 0.2 s and 40 MB that a test alone keeps out."""
    (tmp_path / "data.csv").write_text("x,c,t\n" + "1.5,a,yes\n,b,no\nNA,,yes\n" * 50)
    code = f"""
import sys
import threading
from pathlib import Path
from distcore_data.blame import BadRow
from distcore_data.cache import CacheBuilder
from distcore_core.contracts import PROCESSOR, PluginRef
from distcore_data.encoding.fit import fit_and_encode
from distcore_data.encoding.splits import make_splitter
from distcore_data.features import Features
from distcore_core.registry.manager import Plugins
from distcore_data.sources.registry import open_source

plugins = Plugins()
given = [dict(name=name, type=type_, column=name, role=role, options=dict())
         for name, type_, role in (("x", "number", "input"), ("c", "category", "input"), ("t", "binary", "output"))]
features = Features._make(given, plugins)
for kind, column in (("random", None), ("stratify", "c"), ("hash", "c")):
    folder = Path({str(tmp_path)!r}) / kind
    folder.mkdir()
    builder = CacheBuilder(folder, "key", PluginRef(kind="caches", name="parquet"), plugins)
    splitter = make_splitter(dict(type=kind, column=column), 1)
    source = open_source({str(tmp_path / "data.csv")!r}, features.raw())
    fit_and_encode(source, plugins.make(PROCESSOR, "local", dict()), features, splitter, builder)
print(sorted({{"pandas", "torch"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
