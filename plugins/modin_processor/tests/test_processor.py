"""The Modin processor: blocks keep every bit, Ray is started and stopped more than once, nothing
comes to the driver."""

import glob
import math
import os
import pickle

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from distcore_core.contracts import Processor, ShardPlan
from distcore_core.errors import CacheError, UserError
from distcore_data import cluster_tasks as tasks
from distcore_modin import blocks
from distcore_modin.engine import ModinEngine
from distcore_modin.options import ModinOptions
from distcore_modin.processor import ModinProcessor
from distcore_testing import data, jobs
from distcore_testing.processors import EDGES, PLANS, digested


def test_a_block_keeps_every_bit():
    table = pa.record_batch(
        {
            "number": pa.array([None, math.nan, -0.0, 0.1, 1e308, 5e-324]),
            "category": pa.DictionaryArray.from_arrays(
                pa.array([2, None, 0, 0, 2, 1], pa.int32()), ["b", "NA", "é"]
            ),
            "string": pa.array(["", None, "None", "nan", "a\0b", "東京"]),
        }
    )
    for part in (table, table.slice(1, 4), table.slice(2, 0)):
        back = blocks.table_of(pickle.loads(pickle.dumps(blocks.frame_of(part))))  # noqa: S301 as Ray does
        assert back.schema.equals(part.schema)
        assert back.column("category").dictionary.equals(part.column("category").dictionary)
        for name in ("category", "string"):
            assert back.column(name).equals(part.column(name))
        assert [repr(each) for each in back.column("number").to_pylist()] == [
            repr(each) for each in part.column("number").to_pylist()
        ]


def test_a_partition_that_fails_has_no_block(tmp_path):
    bad = jobs.CountedPartition(str(tmp_path), 0, 5, bad=True)
    block, folded = blocks.read(4, bad, jobs.total_of, None)
    assert block is None
    assert isinstance(folded.failure, tasks.Failure)
    assert folded.failure.index == 4


def test_another_engine_of_modin_is_refused(monkeypatch):
    from modin.config import Engine

    from distcore_modin.engine import _require_ray

    monkeypatch.setattr(Engine, "get", classmethod(lambda cls: "Dask"))
    with pytest.raises(UserError, match=r"MODIN_ENGINE is Dask\. Unset MODIN_ENGINE"):
        _require_ray()


@pytest.mark.cluster
@pytest.mark.slow
def test_ray_is_started_and_stopped_with_the_processor_as_often_as_it_takes(tmp_path, monkeypatch):
    import ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert not ray.is_initialized()
    mine, table = f"/tmp/ray/session_*_{os.getpid()}", data.table()
    before = set(glob.glob(mine))
    expected = _built(tmp_path / "local", {"type": "local"}, table)
    for turn in ("first", "second"):
        assert _built(tmp_path / turn, {"type": "modin", "parallelism": 3}, table) == expected
        assert not ray.is_initialized()
        assert set(glob.glob(mine)) == before


def _built(folder, processor, dataset):
    backend = {"type": "local", "cache_dir": str(folder), "processor": processor}
    return digested({**data.config(""), "backend": backend}, dataset)


@pytest.mark.cluster
def test_in_a_ray_that_is_there(ray_cluster, tmp_path, monkeypatch):
    """One cluster for: what comes back, what is kept, a second scan, engine failures, and who
    shuts Ray down."""
    returned, values = [], ModinEngine.values
    monkeypatch.setattr(
        ModinEngine, "values", lambda engine, refs: _counted(returned, values(engine, refs))
    )
    for rows in (20_000, 200_000):
        returned.append(0)
        pacsv.write_csv(data.table(rows), tmp_path / f"{rows}.csv")
        _built(
            tmp_path / str(rows), {"type": "modin", "parallelism": 4}, str(tmp_path / f"{rows}.csv")
        )
    assert max(returned) < (tmp_path / "200000.csv").stat().st_size / 100, returned

    made = ModinProcessor(ModinOptions())
    assert isinstance(made, Processor)
    made.scan(jobs.CountedSource(tmp_path, EDGES), tmp_path)
    assert made.fold(jobs.total_of, jobs.add)[0] == (4950.0, 100)
    assert type(made._frame).__module__.startswith("modin.pandas")
    assert made._frame.shape == (100, 3)
    assert [found for _, found, _ in made.write_shards(PLANS, jobs.rows_of)] == [
        list(range(plan.start, plan.stop)) for plan in PLANS
    ]
    made.scan(jobs.CountedSource(tmp_path, (0, 2, 4)), tmp_path)
    assert made.fold(jobs.total_of, jobs.add) == ((6.0, 4), [2, 2])
    assert made.write_shards([ShardPlan(index=0, start=1, stop=3)], jobs.rows_of)[0][1] == [
        1.0,
        2.0,
    ]
    monkeypatch.setattr(ModinEngine, "values", lambda engine, refs: 1 / 0)
    with pytest.raises(
        CacheError, match="Preprocessing with Modin on Ray failed: ZeroDivisionError"
    ):
        made.write_shards([ShardPlan(index=0, start=1, stop=3)], jobs.rows_of)
    made.close()
    assert ray_cluster.is_initialized()
    assert not list(tmp_path.glob("failed-*"))


def _counted(returned, found):
    returned[-1] += len(pickle.dumps(found))
    return found
