"""The TFRecord files: that protobuf and TensorFlow read them, that equal tables give equal
bytes, any range of rows."""

import gzip
import importlib.util
import io
import struct
import subprocess
import sys
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from distcore_core.contracts import CACHE_FORMAT
from distcore_core.errors import CacheError, ConfigError
from distcore_core.registry.manager import Plugins
from distcore_data import columns
from distcore_tfrecord import format, index
from distcore_tfrecord.format import TFRecordFormat
from distcore_tfrecord.options import TFRecordOptions

COMPRESSIONS = ["none", "gzip"]


def table(rows=3000, seed=0):
    dice = np.random.default_rng(seed)
    lengths = dice.integers(0, 5, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    tokens = pa.array(dice.integers(0, 1000, offsets[-1]).astype(np.int32))
    signed = pa.array(dice.integers(-(2**31), 2**31, offsets[-1]).astype(np.int32))
    return pa.table(
        {
            "x": dice.normal(size=rows).astype(np.float32),
            "tokens": pa.ListArray.from_arrays(pa.array(offsets), tokens),
            "code": dice.integers(0, 50, rows).astype(np.int32),
            "größe": dice.integers(-(2**31), 2**31, rows).astype(np.int32),
            "vector": pa.FixedSizeListArray.from_arrays(
                pa.array(dice.normal(size=rows * 4).astype(np.float32)), 4
            ),
            "codes": pa.FixedSizeListArray.from_arrays(
                pa.array(dice.integers(0, 300, rows * 2).astype(np.int32)), 2
            ),
            "signed": pa.ListArray.from_arrays(pa.array(offsets), signed),
            "split": dice.integers(-1, 3, rows).astype(np.int8),
        }
    )


def written(values, **options):
    target = io.BytesIO()
    TFRecordFormat(TFRecordOptions(**options)).write(target, values)
    return target.getvalue()


def opened(content):
    return TFRecordFormat().open(io.BytesIO(content))


CONTENTS = {compression: written(table(), compression=compression) for compression in COMPRESSIONS}


# ------------------------------------------------------------------ other readers


def example_class():
    """`tf.train.Example` from TensorFlow's own schema (example.proto, feature.proto), in a pool
    of its own."""
    file = descriptor_pb2.FileDescriptorProto(
        name="example.proto", package="tensorflow", syntax="proto3"
    )
    kind = descriptor_pb2.FieldDescriptorProto

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for number, (field, type, label, type_name) in enumerate(fields, 1):
            made.field.add(name=field, number=number, type=type, label=label, type_name=type_name)
        return made

    one, many = kind.LABEL_OPTIONAL, kind.LABEL_REPEATED
    message("BytesList", ("value", kind.TYPE_BYTES, many, None))
    message("FloatList", ("value", kind.TYPE_FLOAT, many, None))
    message("Int64List", ("value", kind.TYPE_INT64, many, None))
    lists = (("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List"))
    feature = message(
        "Feature", *((name, kind.TYPE_MESSAGE, one, f".tensorflow.{type}") for name, type in lists)
    )
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = message(
        "Features", ("feature", kind.TYPE_MESSAGE, many, ".tensorflow.Features.FeatureEntry")
    )
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kind.TYPE_STRING, label=one)
    entry.field.add(
        name="value", number=2, type=kind.TYPE_MESSAGE, label=one, type_name=".tensorflow.Feature"
    )
    message("Example", ("features", kind.TYPE_MESSAGE, one, ".tensorflow.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


def records(content):
    """The data of each record, by the format's description, both checksums compared."""

    def masked(data):
        crc = google_crc32c.value(data)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    at = 0
    while at < len(content):
        length, crc = struct.unpack_from("<QI", content, at)
        data = content[at + 12 : at + 12 + length]
        assert crc == masked(content[at : at + 8])
        assert struct.unpack_from("<I", content, at + 12 + length)[0] == masked(data)
        at += 16 + length
        yield data


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_protobuf_reads_every_record(compression):
    content = CONTENTS[compression]
    Example, values = example_class(), table().to_pydict()
    found = [
        Example.FromString(data)
        for data in records(gzip.decompress(content) if compression == "gzip" else content)
    ]
    assert len(found) == 3000
    assert index.INDEX in found[0].features.feature
    for row, example in enumerate(found):
        features = example.features.feature
        assert set(features) - {index.INDEX} == set(values)
        for name, column in values.items():
            expected = column[row] if isinstance(column[row], list) else [column[row]]
            wanted = "float_list" if name in ("x", "vector") else "int64_list"
            assert features[name].WhichOneof("kind") == wanted
            assert list(getattr(features[name], wanted).value) == expected


TENSORFLOW = """
import sys
import numpy as np, pyarrow.parquet as pq, tensorflow as tf
path, compression = sys.argv[1:]
expected = pq.read_table(path + ".parquet").to_pydict()
whole = tf.int64
spec = {"x": tf.io.FixedLenFeature([], tf.float32), "tokens": tf.io.RaggedFeature(whole),
    "code": tf.io.FixedLenFeature([], whole), "größe": tf.io.FixedLenFeature([], whole),
    "vector": tf.io.FixedLenFeature([4], tf.float32), "codes": tf.io.FixedLenFeature([2], whole),
    "signed": tf.io.RaggedFeature(whole), "split": tf.io.FixedLenFeature([], whole)}
found = {name: [] for name in spec}
for batch in tf.data.TFRecordDataset(path, compression_type=compression).batch(512):
    parsed = tf.io.parse_example(batch, spec)
    for name, tensor in parsed.items():
        found[name] += tensor.to_list() if isinstance(tensor, tf.RaggedTensor) else tensor.numpy().tolist()
for record in tf.data.TFRecordDataset(path, compression_type=compression).take(3):
    tf.io.parse_single_example(record, spec)
    assert len(tf.train.Example.FromString(record.numpy()).features.feature) >= len(spec)
assert found == expected, "other values"
print("read", len(found["x"]))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="tensorflow is not installed"
)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_tensorflow_reads_the_files(tmp_path, compression):
    import pyarrow.parquet as pq

    path = tmp_path / "00000.tfrecord"
    path.write_bytes(CONTENTS[compression])
    pq.write_table(table(), f"{path}.parquet")
    words = [sys.executable, "-c", TENSORFLOW, str(path), "GZIP" if compression == "gzip" else ""]
    assert subprocess.check_output(words).split() == [b"read", b"3000"]


# ------------------------------------------------------------------ equal bytes


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_bytes_do_not_depend_on_the_process(compression):
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import hashlib, "
        "test_format as t; print(hashlib.sha256(t.written(t.table(20_000), "
        f"compression={compression!r})).hexdigest())"
    )
    assert len({subprocess.check_output([sys.executable, "-c", code]) for _ in range(2)}) == 1


# ------------------------------------------------------------------ reading


def _small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(format, "BLOCK_BYTES", 64 << 10)
        return {
            compression: written(table(), compression=compression) for compression in COMPRESSIONS
        }


SMALL_BLOCKS = _small_blocks()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_table_comes_back(data):
    """Any widths of numbers and of lengths, alone or together, few rows or none."""
    rows = data.draw(st.integers(0, 40))
    dice = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    columns = {}
    for number in range(data.draw(st.integers(1, 4))):
        bits = data.draw(st.sampled_from([0, 1, 7, 8, 14, 15, 21, 28, 31]))
        low = data.draw(st.sampled_from([0, -1, -(2**31)]))
        ragged = data.draw(st.booleans())
        counts = (
            dice.integers(0, data.draw(st.sampled_from([1, 3, 60])) + 1, rows)
            if ragged
            else np.ones(rows, int)
        )
        values = pa.array(
            dice.integers(low, 1 << bits, counts.sum(), endpoint=bits < 31).astype(np.int32)
        )
        if data.draw(st.booleans()):
            values = values.cast(pa.float32(), safe=False)
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        columns["c" * (number * 70) + str(number)] = (
            pa.ListArray.from_arrays(offsets, values) if ragged else values
        )
    expected = pa.table(columns)
    found = opened(written(expected, compression=data.draw(st.sampled_from(COMPRESSIONS)))).read()
    found.validate(full=True)
    assert found.to_pydict() == expected.to_pydict()
    kinds = [
        str(kind).replace("element", "item").replace(" not null", "") for kind in found.schema.types
    ]
    assert kinds == list(map(str, expected.schema.types))


def test_small_reads_in_order_decode_each_block_once(monkeypatch):
    decoded, real = [], format.decode
    monkeypatch.setattr(format, "decode", lambda *words: decoded.append(words[2]) or real(*words))
    shard = opened(SMALL_BLOCKS["gzip"])
    for start in range(0, 3000, 100):
        shard.read(start, start + 100, ["code"])
    assert sum(decoded) == 3000
    assert len(decoded) > 3


def test_no_block_is_read_that_has_none_of_the_rows():
    shard = index.Index((), 1, rows=13, block_rows=4, sizes=(1, 1, 1))
    for start in range(14):
        for stop in range(start, 14):
            parts = list(shard.parts(start, stop))
            rows = [row for first, last, _ in parts for row in range(first, last)]
            assert rows == list(range(rows[0], rows[-1] + 1)) if rows else start == stop
            assert set(range(start, stop)) <= set(rows)
            assert all(first < stop and start < last for first, last, _ in parts)


def test_neither_tensorflow_nor_protobuf_is_imported():
    code = (
        "import sys, io, numpy, pyarrow; from distcore_data.arrow import from_numpy as a; from "
        "distcore_tfrecord.format import TFRecordFormat as F; b = io.BytesIO(); F().write(b, "
        "pyarrow.Table.from_arrays([a(numpy.zeros(9, 'f4'))], ['x'])); F().open(b).read(); "
        "print([name for name in sys.modules if name.split('.')[0] in ('tensorflow', 'pandas') or "
        "'protobuf' in name])"
    )
    assert subprocess.check_output([sys.executable, "-c", code]).strip() == b"[]"


# ------------------------------------------------------------------ refused when writing


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, None], pa.float32()),
        pa.array([[1], None], pa.list_(pa.int32())),
        pa.array([[1], [None]], pa.list_(pa.int32())),
        pa.array([[1.0], None], pa.list_(pa.float32(), 1)),
    ],
)
def test_missing_values_are_refused_by_the_column_name(column):
    with pytest.raises(CacheError, match="'age' has 1 missing values"):
        written(pa.table({"age": column}))


def test_a_column_called_as_the_index_is_refused():
    with pytest.raises(CacheError, match="cannot be called 'distcore:index'"):
        written(pa.table({index.INDEX: np.zeros(3, np.float32)}))


def test_a_higher_level_makes_a_smaller_file_of_the_same_rows():
    values = table()
    files = [written(values, compression="gzip", compression_level=level) for level in (1, 9)]
    assert len(files[1]) < len(files[0]) == len(CONTENTS["gzip"])
    assert opened(files[1]).read() == opened(files[0]).read()


def test_what_would_look_like_a_bomb_is_not_compressed(monkeypatch):
    """The reader refuses more than 64 times the file's bytes beyond a floor, so the writer keeps
    below it."""
    zeros = pa.table({"x": np.zeros(300_000, np.float32)})
    packed = written(zeros, compression="gzip")
    monkeypatch.setattr(columns, "FLOOR_BYTES", 100_000)
    monkeypatch.setattr(columns, "MOST_RATIO", 4)
    with pytest.raises(ValueError, match="cannot come from"):
        opened(packed)
    content = written(zeros, compression="gzip")
    assert len(content) > 10 * len(packed)
    assert opened(content).read().num_rows == 300_000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compresion": "gzip"}, "did you mean 'compression'"),
        ({"compression": "rar"}, "rar"),
        ({"compression": "gzip", "compression_level": 10}, "9"),
        ({"compression_level": 4}, "compression_level needs compression: gzip"),
    ],
)
def test_wrong_options_are_told(options, words):
    with pytest.raises(ConfigError, match=words):
        Plugins().make(CACHE_FORMAT, "tfrecord", options)
