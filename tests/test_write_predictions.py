"""Predictions are written by a thread beside the forward pass: in order, whole or not at all."""

import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distcore.workflow.results import refuse_without_scores
from distcore_core.contracts import TrainResult
from distcore_core.errors import DistcoreError, TrainingError
from distcore_torch import prediction_files
from distcore_torch.decoding import RowNumbers, finite_or_told, numbered_from, spread
from distcore_torch.prediction_files import GROUP_ROWS, write_predictions

SCHEMA = pa.schema([("y", pa.int64())])


def batch(start: int, rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(start, start + rows))], schema=SCHEMA)


def test_rows_keep_their_order_over_row_groups(tmp_path) -> None:
    size, count = GROUP_ROWS // 2 + 1, 7
    path = tmp_path / "predictions.parquet"
    assert (
        write_predictions(path, (batch(i * size, size) for i in range(count)), SCHEMA)
        == size * count
    )
    assert pq.ParquetFile(path).num_row_groups == 4
    assert pq.read_table(path)["y"].to_pylist() == list(range(size * count))


def test_a_row_group_of_wide_rows_has_fewer_of_them(tmp_path, monkeypatch) -> None:
    """131,072 rows of 20,000 classes were 10 GB of memory."""
    monkeypatch.setattr(prediction_files, "GROUP_BYTES", 8 * 1000)
    path = tmp_path / "predictions.parquet"
    write_predictions(path, (batch(i * 300, 300) for i in range(10)), SCHEMA)
    found = pq.ParquetFile(path).metadata
    assert [found.row_group(i).num_rows for i in range(3)] == [1200, 1200, 600]
    assert pq.read_table(path)["y"].to_pylist() == list(range(3000))


def test_no_rows_are_a_file_of_the_schema(tmp_path) -> None:
    path = tmp_path / "predictions.parquet"
    assert write_predictions(path, iter(()), SCHEMA) == 0
    assert pq.read_table(path).schema == SCHEMA


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_an_error_while_predicting_leaves_no_file(tmp_path, groups) -> None:
    def failing():
        yield from (batch(0, GROUP_ROWS) for _ in range(groups))
        raise ValueError("the forward pass failed")

    with pytest.raises(ValueError, match="forward pass"):
        write_predictions(tmp_path / "predictions.parquet", failing(), SCHEMA)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_an_error_in_the_writing_thread_is_raised_and_leaves_what_was_there(
    tmp_path, monkeypatch, writes
) -> None:
    path = tmp_path / "predictions.parquet"
    path.write_bytes(b"the ones before")
    write, done = pq.ParquetWriter.write_table, []

    def full(self, table):
        done.append(table)
        if len(done) == writes:
            raise OSError(28, "No space left on device")
        write(self, table)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(DistcoreError, match=r"no space .*--output_file if you gave that"):
        write_predictions(path, (batch(0, GROUP_ROWS) for _ in range(3)), SCHEMA)
    assert path.read_bytes() == b"the ones before"
    assert [each.name for each in tmp_path.iterdir()] == ["predictions.parquet"]


def test_predictions_that_are_not_finite_are_told_by_column_and_row(caplog) -> None:
    def part(numbers, lists):
        return pa.record_batch(
            {
                "y": pa.array(numbers),
                "y_probabilities": pa.array(lists),
                "name": pa.array(["a", "b"]),
            }
        )

    batches = [
        part([1.0, None], [[0.5], [0.5]]),
        part([float("inf"), 2.0], [[0.5, 0.5], [float("nan"), 0.1]]),
        part([float("nan"), float("-inf")], [[float("nan"), float("inf")], [0.5]]),
    ]
    assert list(finite_or_told(iter(batches))) == batches
    told = [each.partition(":")[0] for each in caplog.messages]
    assert told == [
        "y is not finite in 3 of 6 rows, the first of them row 2 (from 0)",
        "y_probabilities is not finite in 2 of 6 rows, the first of them row 3 (from 0)",
    ]


def test_of_an_evaluation_the_row_of_the_dataset_is_told(caplog) -> None:
    """A number that is missing is none that is not finite."""
    batches = [
        pa.record_batch({"row": pa.array(rows), "y": pa.array(values)})
        for rows, values in (([3, 4], [1.0, 2.0]), ([7, 9, 12], [None, float("nan"), 2.0]))
    ]
    assert list(finite_or_told(iter(batches))) == batches
    (told,) = caplog.messages
    assert told.startswith("y is not finite in 1 of 5 rows, the first of them row 9 (from 0)")


def test_numbers_stand_beside_the_predictions_however_both_are_cut() -> None:
    numbers = RowNumbers(np.arange(0, 3), np.arange(5, 6))
    numbers.tell(np.arange(8, 12))
    found = [*numbers.beside(iter([batch(0, 2), batch(2, 4), batch(6, 0), batch(6, 2)]))]
    assert [each["row"].to_pylist() for each in found] == [[0, 1], [2, 5, 8, 9], [], [10, 11]]
    assert [each["y"].to_pylist() for each in found] == [[0, 1], [2, 3, 4, 5], [], [6, 7]]
    moved = [each["row"].to_pylist() for each in numbered_from(100, found[:2])]
    assert moved == [[100, 101], [102, 105, 108, 109]]


def test_rows_that_were_not_predicted_are_nulls_in_their_places() -> None:
    def spread_out(parts, kept, rows):
        return spread(parts, np.array(kept, np.int64), rows, SCHEMA)["y"].to_pylist()

    assert spread_out([batch(7, 2), batch(9, 1)], [0, 2, 3], 5) == [7, None, 8, 9, None]
    assert spread_out([], [], 2) == [None, None]
    assert spread_out([], [], 0) == []


def test_a_model_without_a_finite_score_is_refused(tmp_path) -> None:
    def ended(**values):
        return TrainResult(
            model=tmp_path,
            statistics={"validation": {"y": {"loss": [0.1, values["y"]]}, "z": {"loss": [2.0]}}},
            best={},
            steps=1,
            epochs=1.0,
        )

    refuse_without_scores(ended(y=0.1))
    for value in (None, float("nan")):
        with pytest.raises(TrainingError, match="No score of y is finite"):
            refuse_without_scores(ended(y=value))


def test_ctrl_c_while_the_last_rows_are_written_waits_for_them(tmp_path, monkeypatch):
    """Arrow's writer was closed under the thread that wrote, which ended the process."""
    told, begun = [], threading.Event()

    class Writer:
        def write_table(self, table):
            begun.set()
            time.sleep(0.3)
            told.append("written")

        def close(self):
            told.append("closed")

    def interrupted(pool, *error):
        begun.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(prediction_files, "_writer", lambda *_: Writer())
    monkeypatch.setattr(prediction_files.ThreadPoolExecutor, "__exit__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_predictions(tmp_path / "a.parquet", [batch(0, 2)], SCHEMA)
    assert told == ["written", "closed"]
    assert not [*tmp_path.iterdir()]
