"""Which rows of a cache are read at once to be predicted, and which go through the model
together."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from distcore_core.contracts import Column
from distcore_torch import packing, prediction

ROWS = 1000


class Reader:
    """Rows of a number and of a list of five codes; what was asked is kept."""

    def __init__(self):
        self.asked = []

    def rows(self, split):
        return ROWS

    def read(self, split, start, stop, names):
        self.asked.append((start, stop))
        values = {
            "number": pa.array(np.arange(start, stop, dtype=np.float32)),
            "codes": pa.array([[row] * 5 for row in range(start, stop)], pa.list_(pa.int32())),
        }
        return pa.record_batch({name: values[name] for name in names})


def passes(reader, **asked):
    """The first row and the rows of each pass of a split through a model, which answers an input
    too."""
    features = SimpleNamespace(
        inputs=[SimpleNamespace(name="number"), SimpleNamespace(name="codes")],
        outputs=[],
        types={"number": "number", "codes": "vector"},
        columns={
            "number": Column(name="number", dtype="float32"),
            "codes": Column(name="codes", dtype="int32", width=None),
        },
    )
    artifact = SimpleNamespace(
        features=features,
        predictor=SimpleNamespace(predict=lambda batch: {"number": batch["number"].numpy()}),
    )
    batches = list(prediction.split_batches(artifact, reader, "test", **asked))
    numbers = np.concatenate([outputs["number"] for _, outputs in batches])
    return [(batch.start, batch.rows) for batch, _ in batches], numbers


@pytest.mark.parametrize("stretches", [None, [(0, 150), (500, 1000)]])
def test_wide_rows_are_read_some_at_once_and_go_through_the_model_as_before(stretches, monkeypatch):
    """65,536 rows of 20,000 numbers are 5 GB, and the next ones are read beside them. Passes that
    began elsewhere would have other last bits."""
    monkeypatch.setattr(prediction, "READ_ROWS", 200)
    monkeypatch.setattr(packing, "SAMPLE_ROWS", 10)
    usual = Reader()
    wanted, numbers = passes(usual, batch_size=30, stretches=stretches)
    assert max(stop - start for start, stop in usual.asked) == 200
    rows = [row for stretch in stretches or [(0, ROWS)] for row in range(*stretch)]
    assert numbers.tolist() == rows
    monkeypatch.setattr(prediction, "READ_BYTES", 70 * (4 + 8 + 5 * 4))
    wide = Reader()
    found, same = passes(wide, batch_size=30, stretches=stretches)
    assert max(stop - start for start, stop in wide.asked) == 60
    assert found == wanted
    assert np.array_equal(same, numbers)


def test_how_many_partitions_make_a_piece_goes_by_their_number_alone():
    """Another one is another order of adding: other last bits than those of before."""
    told = {each: prediction.partitions_together(each) for each in (0, 1, 127, 128, 1023, 10**6)}
    assert told == {0: 1, 1: 1, 127: 1, 128: 2, 1023: 15, 10**6: 16}
