"""What the suite of features asks with: values that training never saw, partitions of a column,
another process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa

from distcore_core.contracts import JSON, Column, Feature
from distcore_core.errors import DataError
from distcore_data.json_text import in_line
from distcore_testing.elsewhere import said_elsewhere

UNSEEN: Mapping[str, pa.Array] = {
    "number": pa.array([1e6, -1e6, 0.0, -0.0, 3.5, 1e300, -1e300]),
    "category": pa.array(["never seen", "Über-1", " ", "0", "nan", "x" * 5000]).dictionary_encode(),
    "string": pa.array(["never seen before", "", "  ", "ß€😀", "a" * 5000, "one,two one"]),
    "time": pa.array(["never seen", "2024-02-30", " ", "2031-01-01 25:00"]).dictionary_encode(),
}
"""For each way of reading a column, what `FeatureSuite.unseen` gives."""

TIMES = (
    *("2024-02-29 12:30:45", "1969-12-31 23:59:59", None, "1970-01-01 00:00:00"),
    *("0001-01-01 00:00:00", "9999-12-31 23:59:59", "2024-02-29 12:30:45", None),
)
"""What a column may have that is read as times."""

LABELS = (
    *("Über", "Uber", "caf\u00e9", "日本 😀", " red", "red ", "Red", "a\nb", 'a "b", c'),
    *("0", "1.0", "01", "True", "column_predictions"),
    *(f"label {number}" for number in range(260)),
)
"""What a column of classes may hold: names that are nearly the same, and more than 256 of them."""

CHILD = """
import base64, json, sys
import pyarrow as pa
from distcore_core.contracts import FEATURE
from distcore_core.registry.manager import Plugins
from distcore_data.json_text import in_line
name, role, options, column = json.load(sys.stdin)
with pa.ipc.open_stream(base64.b64decode(column)) as stream:
    [values] = stream.read_all().column(0).chunks
feature = Plugins().make(FEATURE, name, options, column="column", role=role)
parts = [values.slice(0, 9), values.slice(9)]
metadata = feature.finish(feature.merge(*map(feature.partial, parts)))
codes = repr(feature.encode(values, metadata).to_pylist())
print("FOUND" + in_line({"metadata": metadata, "codes": codes}, False))
"""


def cut(values: pa.Array, seed: int, pieces: int = 6) -> list[pa.Array]:
    """Slices at random places, empty ones among them."""
    places = np.random.default_rng(seed).integers(0, len(values) + 1, pieces - 1)
    edges = [0, *sorted(int(place) for place in places), len(values)]
    return [values.slice(start, stop - start) for start, stop in pairwise(edges)]


def awkward(values: pa.Array) -> pa.Array:
    """Numbers in the range of these, in no order, whose sums float64 rounds; some are missing."""
    rows = 1000
    known = values.drop_null().to_numpy()
    known = known[np.isfinite(known)]
    low, high = float(known.min()), float(known.max())
    steps = np.random.default_rng(0).permutation(rows) * 0.1
    made = np.clip(low + (high - low) * steps / (0.1 * rows), low, high)
    return pa.array(made, mask=np.arange(rows) % 11 == 0)


def once_each(values: pa.Array) -> pa.Array:
    """The first row of each value."""
    plain = values.to_pylist()
    rows = {value: row for row, value in reversed([*enumerate(plain)]) if value is not None}
    return values.take(pa.array(sorted(rows.values()), pa.int64()))


def with_labels(values: pa.DictionaryArray) -> pa.DictionaryArray:
    """The values, and after them every one of `LABELS`."""
    return pa.array([*values.to_pylist(), *LABELS], pa.string()).dictionary_encode()


def redictionaried(values: pa.DictionaryArray, more: tuple[str, ...] = ()) -> pa.DictionaryArray:
    """The same values by a dictionary in another order, which may hold some of no row."""
    labels = sorted({label for label in values.to_pylist() if label is not None}, reverse=True)
    labels = [*more, *labels]
    code = {label: index for index, label in enumerate(labels)}
    codes = pa.array([None if each is None else code[each] for each in values.to_pylist()])
    return pa.DictionaryArray.from_arrays(codes.cast(pa.int32()), pa.array(labels, pa.string()))


def encoded_or_refused(feature: Feature, values: pa.Array, metadata: JSON) -> pa.Array | None:
    """The codes, or None if the feature says by its name that it has none for these values."""
    try:
        return feature.encode(values, metadata)
    except DataError as error:
        names_the_column(feature, error)
        return None


def names_the_column(feature: Feature, error: DataError) -> None:
    """What a user reads tells which column it is about."""
    assert repr(feature.name) in str(error), "the error does not say which column it is"


def check_codes(encoded: pa.Array, column: Column) -> None:
    """Codes are of the declared type, none is missing, and floats are finite."""
    assert encoded.null_count == 0
    assert type_of(encoded) == (column.dtype, column.width)
    if column.dtype == "float32":
        plain = encoded.flatten() if column.width != 1 else encoded
        assert np.isfinite(plain.to_numpy(zero_copy_only=False)).all()


def type_of(encoded: pa.Array) -> tuple[str, int | None]:
    """(dtype, width) of an encoded column, as `Column` says them."""
    names = {pa.float32(): "float32", pa.int32(): "int32"}
    if pa.types.is_fixed_size_list(encoded.type):
        return names[encoded.type.value_type], encoded.type.list_size
    if pa.types.is_list(encoded.type):
        return names[encoded.type.value_type], None
    return names[encoded.type], 1


def as_json(metadata: JSON) -> str:
    """One text for equal metadata. Raises ValueError for what is no JSON."""
    return in_line(metadata, sort_keys=True)


def in_another_process(name: str, role: str, options: JSON, values: pa.Array) -> JSON:
    """{"metadata", "codes"} that a process with another PYTHONHASHSEED finds."""
    import base64

    sink = pa.BufferOutputStream()
    batch = pa.record_batch([values], names=["column"])
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    column = base64.b64encode(sink.getvalue()).decode()
    said = said_elsewhere(CHILD, given=json.dumps([name, role, options, column]))
    found: JSON = json.loads(said.partition("FOUND")[2])
    return found
