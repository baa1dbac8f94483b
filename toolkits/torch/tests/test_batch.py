"""Batches are views of one packed matrix."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
import torch

from distcore_core.contracts import Column
from distcore_torch import gather
from distcore_torch.batch import Batch, Layout, Ragged
from distcore_torch.packing import pack

COLUMNS = [
    Column(name="code", dtype="int32"),
    Column(name="age", dtype="float32"),
    Column(name="words", dtype="int32", width=None),
    Column(name="vector", dtype="float32", width=3),
    Column(name="pair", dtype="int32", width=2),
]
ENCODED = pa.record_batch(
    {
        "age": pa.array([0.5, -1.0], pa.float32()),
        "code": pa.array([7, 8], pa.int32()),
        "words": pa.array([[1, 2], []], pa.list_(pa.int32())),
        "vector": pa.array([[1, 2, 3], [4, 5, 6]], pa.list_(pa.float32(), 3)),
        "pair": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
    }
)


@pytest.fixture
def batch():
    return pack(ENCODED, Layout.of(COLUMNS), start=40)


def test_layout_has_floats_first_in_the_given_order():
    layout = Layout.of(COLUMNS)
    assert [(name, slot.start, slot.width) for name, slot in layout.slots.items()] == [
        ("age", 0, 1),
        ("vector", 1, 3),
        ("code", 4, 1),
        ("pair", 5, 2),
    ]
    assert layout.words == 7
    assert layout.ragged == ("words",)


def test_layout_without_columns():
    assert Layout.of([]).words == 0


def test_columns_come_back_as_they_were(batch):
    assert batch.rows == 2
    assert batch.start == 40
    assert batch["age"].dtype == torch.float32
    assert batch["age"].tolist() == [0.5, -1.0]
    assert batch["vector"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert batch["code"].dtype == torch.int32
    assert batch["code"].tolist() == [7, 8]
    assert batch["pair"].tolist() == [[1, 2], [3, 4]]
    assert batch["words"].values.tolist() == [1, 2]
    assert batch["words"].offsets.tolist() == [0, 2, 2]


def test_columns_are_views(batch):
    batch["age"][0] = 2.5
    assert batch.packed[0, 0].item() == np.float32(2.5).view(np.int32)
    assert batch["vector"].data_ptr() == batch.packed[:, 1:].data_ptr()


def test_is_a_mapping_of_its_columns(batch):
    assert sorted(batch) == sorted(column.name for column in COLUMNS)
    assert len(batch) == 5
    assert "age" in batch
    assert "height" not in batch
    with pytest.raises(KeyError, match="height"):
        batch["height"]


def test_a_block_of_neighbours_is_a_view_and_of_others_a_copy(batch):
    block = batch.block(["age", "vector"])
    assert block.data_ptr() == batch.packed.data_ptr()
    assert block.tolist() == [[0.5, 1, 2, 3], [-1, 4, 5, 6]]
    assert batch.block(["vector", "age"]).tolist() == [[1, 2, 3, 0.5], [4, 5, 6, -1]]
    assert batch.block(["code", "pair"]).dtype == torch.int32


def test_moving_keeps_everything(batch):
    moved = batch.to(torch.device("cpu"))
    assert moved.start == 40
    assert moved["words"].offsets.tolist() == [0, 2, 2]
    assert torch.equal(moved.packed, batch.packed)


def test_no_rows():
    layout = Layout.of(COLUMNS)
    empty = Batch(
        torch.zeros(0, 7, dtype=torch.int32),
        layout,
        {"words": Ragged(torch.zeros(0), torch.zeros(1, dtype=torch.int64))},
    )
    assert empty.rows == 0
    assert empty["vector"].shape == (0, 3)
    assert empty.block(["code", "pair"]).shape == (0, 3)


def test_layouts_travel_to_workers():
    layout = Layout.of(COLUMNS)
    assert pickle.loads(pickle.dumps(layout)) == layout  # noqa: S301 - our own bytes


def scattered():
    """(columns of every width in turn, a batch of them: rows 1 to 3 of four)."""
    columns, arrays = [], {}
    for place in range(9):
        kinds = (("float32", pa.float32()), ("int32", pa.int32()))
        for dtype, kind in kinds:
            name = f"{dtype}{place}"
            width = 2 if place == 4 else 1
            columns.append(Column(name=name, dtype=dtype, width=width))
            values = [row * 100 + place for row in range(4)]
            arrays[name] = (
                pa.array(values, kind)
                if width == 1
                else pa.array([[each, -each] for each in values], pa.list_(kind, 2))
            )
    return columns, pa.record_batch(arrays).slice(1, 3)


def test_columns_that_are_filled_in_together_are_as_one_by_one():
    columns, encoded = scattered()
    batch = pack(encoded, Layout.of(columns))
    for column in columns:
        assert batch[column.name].tolist() == encoded.column(column.name).to_pylist()
    unsigned = encoded.set_column(1, "int320", encoded.column("int320").cast(pa.uint32()))
    assert torch.equal(pack(unsigned, Layout.of(columns)).packed, batch.packed)


@pytest.mark.parametrize("by_compiled_code", [True, False])
def test_rows_from_the_middle_of_columns_in_any_order(monkeypatch, by_compiled_code):
    """As a processor's table gives them: beside others, and cut out of more rows."""
    if not by_compiled_code:
        monkeypatch.setattr(gather, "compiled", None)
    values = {
        "words": pa.array([[9], [1, 2], [], [3], [8, 8]], pa.list_(pa.int32())),
        "b": pa.array([1, 2, 3, 4, 5], pa.int32()),
        "other": pa.array([1.5] * 5, pa.float32()),
        "y": pa.array([0.1, 0.2, 0.3, 0.4, 0.5], pa.float32()),
        "a": pa.array([6, 7, 8, 9, 10], pa.int32()),
        "pair": pa.array([[each, -each] for each in range(5)], pa.list_(pa.int32(), 2)),
        "x": pa.array([1.0, 2.0, 3.0, 4.0, 5.0], pa.float32()),
    }
    kinds = {"x": "float32", "y": "float32", "a": "int32", "b": "int32"}
    layout = Layout.of(
        [
            *(Column(name=name, dtype=dtype) for name, dtype in kinds.items()),
            Column(name="pair", dtype="int32", width=2),
            Column(name="words", dtype="int32", width=None),
        ]
    )
    encoded = pa.record_batch(values).slice(1, 3)
    found = pack(encoded, layout)
    for name in (*kinds, "pair"):
        assert found[name].tolist() == encoded.column(name).to_pylist()
    assert found["words"].values.tolist() == [1, 2, 3]
    assert found["words"].offsets.tolist() == [0, 2, 2, 3]


def test_nulls_are_refused():
    columns, encoded = scattered()
    holes = encoded.set_column(1, "int320", pa.array([1, None, 3], pa.int32()))
    with pytest.raises(TypeError, match="1 nulls"):
        pack(holes, Layout.of(columns))


def test_a_layout_remembers_its_blocks(batch):
    first = batch.layout._block(("age", "vector"))
    assert batch.layout._block(("age", "vector")) is first
    assert (first.start, first.width, first.dtype) == (0, 4, torch.float32)
    assert batch.layout._block(["vector", "age"]) is None
    assert batch.layout == Layout.of(COLUMNS)
