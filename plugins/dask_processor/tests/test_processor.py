"""The Dask processor on this machine's threads: where it runs, what it keeps, older spellings,
mistakes that it tells."""

import contextlib
import copy
import errno
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

import distcore
from distcore_core.contracts import Processor, ShardPlan
from distcore_core.errors import CacheError, ConfigError, UserError
from distcore_dask.engines import ThreadEngine, find_engine
from distcore_dask.options import DaskOptions
from distcore_dask.processor import DaskProcessor
from distcore_data import cluster_tasks as tasks
from distcore_data.os_errors import in_words
from distcore_testing import data, jobs
from distcore_testing.processors import digested


def scanned(folder, edges=(0, 5, 5, 6, 40, 41, 100), bad=(), **options):
    made = DaskProcessor(DaskOptions(**options))
    made.scan(jobs.CountedSource(folder, edges, bad), folder)
    return made


def test_rows_wait_in_the_scratch_folder_and_are_gone_after_close(tmp_path):
    made = scanned(tmp_path)
    made.fold(jobs.total_of, jobs.add)
    assert len(list(tmp_path.rglob("*.arrow"))) == 5  # an empty partition keeps nothing
    made.close()
    made.close()
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    assert isinstance(made, Processor)


def test_a_second_scan_forgets_the_first(tmp_path):
    made = scanned(tmp_path)
    made.fold(jobs.total_of, jobs.add)
    made.scan(jobs.CountedSource(tmp_path, (0, 2, 4)), tmp_path)
    assert made.fold(jobs.total_of, jobs.add) == ((6.0, 4), [2, 2])
    assert made.write_shards([ShardPlan(index=0, start=1, stop=3)], jobs.rows_of)[0][1] == [
        1.0,
        2.0,
    ]
    made.close()


def test_many_partitions_merge_in_a_tree_and_every_shard_gets_its_rows(tmp_path):
    edges = list(range(0, 301, 3))
    made = scanned(tmp_path, edges)
    (total, rows), counts = made.fold(jobs.total_of, jobs.add)
    assert (total, rows, counts) == (sum(range(300)), 300, [3] * 100)
    plans = [
        ShardPlan(index=index, start=start, stop=min(start + 7, 300))
        for index, start in enumerate(range(0, 300, 7))
    ]
    for _ in range(2):  # a survey and the shards
        found = made.write_shards(plans, jobs.rows_of)
        assert [row for _, part, _ in found for row in part] == list(range(300))
    made.close()


def test_a_source_without_partitions_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no partitions"):
        scanned(tmp_path, (0,)).fold(jobs.total_of, jobs.add)


def test_after_a_failure_later_partitions_are_not_read(tmp_path):
    made = scanned(tmp_path, list(range(2001)), bad=(70,))
    with pytest.raises(ValueError, match="rows 70 to 71 are damaged"):
        made.fold(jobs.total_of, jobs.add)
    assert len(list(tmp_path.glob("read-*"))) < 1000
    made.close()


def test_a_shard_that_cannot_be_written_is_told_first_of_all(tmp_path):
    made = scanned(tmp_path)
    made.fold(jobs.total_of, jobs.add)

    def write(plan, blocks):
        if plan.index:
            raise OSError(28, f"full at shard {plan.index}")
        return plan.index

    with pytest.raises(OSError, match="full at shard 1"):
        made.write_shards(
            [ShardPlan(index=index, start=index * 20, stop=index * 20 + 20) for index in range(5)],
            write,
        )
    made.close()


def test_what_the_graph_itself_raises_names_the_engine(tmp_path):
    made = scanned(tmp_path)
    made._engine.run = lambda *_: 1 / 0
    with pytest.raises(
        CacheError, match=r"Preprocessing on Dask's threads failed: ZeroDivisionError"
    ):
        made.fold(jobs.total_of, jobs.add)
    made.close()


def test_threads_are_never_more_than_cpus_nor_than_asked():
    cpus = len(os.sched_getaffinity(0))
    assert ThreadEngine().cpus == ThreadEngine(1000).cpus == cpus
    assert ThreadEngine(1).cpus == 1
    assert isinstance(find_engine(DaskOptions()), ThreadEngine)


def test_an_address_where_nobody_answers_is_told(monkeypatch):
    monkeypatch.setattr("distcore_dask.engines.CONNECT_SECONDS", 1)
    for address in ("tcp://127.0.0.1:9", "nowhere"):
        with pytest.raises(
            UserError, match=r"No Dask scheduler can be reached at .*dask scheduler"
        ):
            find_engine(DaskOptions(address=address))


@pytest.mark.parametrize("spelling", [
    {"processor": {"type": "dask"}}, {"engine": {"type": "dask", "parallelism": 3}}, {"engine": "dask"}
])  # fmt: skip
def test_every_spelling_with_the_local_backend_gives_the_local_cache(tmp_path, spelling):
    table = data.table()
    backends = [{"type": "local", "cache_dir": str(tmp_path / name)} for name in "ab"]
    assert _built({**backends[0], **spelling}, table) == _built(backends[1], table)


def _built(backend, table):
    return digested({**data.config(""), "backend": backend}, table)


def test_an_unknown_option_is_told():
    config = data.config("x")
    config["backend"]["processor"] = {"type": "dask", "adress": "tcp://x:1"}
    with pytest.raises(ConfigError, match=r"adress.*address"):
        distcore.preprocess(config, dataset=data.table())


def test_naming_it_imports_no_engine_that_is_not_used(tmp_path):
    code = (
        "import distcore, sys; from distcore_testing import data;config = "
        "data.config(sys.argv[1]); config['backend']['processor'] = {'type': "
        "'dask'};distcore.preprocess(config, dataset=sys.argv[2]);print([name for name in ('ray', "
        "'distributed', 'pandas', 'dask.dataframe') if name in sys.modules])"
    )
    pacsv.write_csv(data.table(), tmp_path / "data.csv")
    words = [sys.executable, "-c", code, str(tmp_path), str(tmp_path / "data.csv")]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip().splitlines()[-1] == "[]"


# ------------------------------------------------------------------ distcore_data.cluster_tasks


def test_slices_cover_a_plan_in_row_order():
    starts = [0, 5, 5, 6, 40]
    assert tasks.slices(ShardPlan(index=0, start=3, stop=7), starts) == [
        tasks.Slice(0, 3, 3, 5),
        tasks.Slice(2, 5, 0, 1),
        tasks.Slice(3, 6, 0, 1),
    ]
    assert tasks.slices(ShardPlan(index=0, start=6, stop=40), starts) == [tasks.Slice(3, 6, 0, 34)]


def test_what_a_task_raised_travels_with_where_it_was_raised():
    def failing():
        raise KeyError("x")

    failure = tasks.attempt(1, None, failing)
    noted = copy.copy(failure.error)  # as pickling does
    assert "in failing" in noted.__notes__[0]
    assert "KeyError: 'x'" in noted.__notes__[0]


def test_what_a_file_system_leaves_among_the_marks_is_no_failure(tmp_path):
    marks = str(tmp_path)
    (tmp_path / ".nfs000000000000001200000001").touch()
    assert not tasks.failed_before(marks, 7)
    tasks.mark(marks, 3)
    assert (tasks.failed_before(marks, 3), tasks.failed_before(marks, 4)) == (False, True)
    tasks.mark(marks, -1)
    assert tasks.failed_before(marks, 0)


def test_a_file_that_another_host_does_not_see_is_told(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("x\n")
    failure = tasks.Failure(
        0, FileNotFoundError(2, "No such file or directory", str(path)), "node7"
    )
    with pytest.raises(CacheError, match=r"data\.csv cannot be reached on node7"):
        tasks.raise_failure(failure)
    with pytest.raises(FileNotFoundError):
        tasks.raise_failure(
            tasks.Failure(0, FileNotFoundError(2, "No such file", "/nowhere/at/all"), "node7")
        )


def test_a_host_whose_disk_is_full_is_told():
    with pytest.raises(OSError, match="full") as told:
        tasks.raise_failure(tasks.Failure(0, OSError(errno.ENOSPC, "full"), "node7"))
    assert "the system refused a task on node7 (no space left on device)" in in_words(told.value)


def test_a_partition_that_shrank_before_it_was_read_again_is_told(tmp_path):
    class Shrunk:
        def read(self):
            return pa.record_batch({"row": [1.0]})

    found = tasks.write(
        lambda plan, blocks: 0,
        ShardPlan(index=0, start=0, stop=5),
        [tasks.Slice(0, 0, 0, 5)],
        [Shrunk()],
        None,
    )
    assert isinstance(found, tasks.Failure)
    assert "Leave the data as they are" in str(found.error)


def test_merging_that_fails_is_a_failure_of_its_first_partition():
    parts = [tasks.Folded(1, ((index, 1, None),)) for index in (4, 5)]
    found = tasks.merge_folded(lambda left, right: left / 0, parts)
    assert isinstance(found.failure.error, ZeroDivisionError)
    assert found.failure.index == 4
    assert (
        tasks.read_and_fold(0, jobs.CountedPartition("/nowhere", 0, 1), len, None, None).failure
        is not None
    )


def test_workers_in_another_folder_read_a_dataset_that_was_named_from_here(tmp_path, monkeypatch):
    """As those of a cluster are: they looked for `data.csv` in theirs."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    pacsv.write_csv(data.table(), "data.csv")
    run = ThreadEngine.run

    def elsewhere(self, *arguments):
        with contextlib.chdir(tmp_path / "elsewhere"):
            return run(self, *arguments)

    monkeypatch.setattr(ThreadEngine, "run", elsewhere)
    config = data.config(str(tmp_path / "cache"))
    config["backend"]["processor"] = {"type": "dask"}
    distcore.preprocess(config, "data.csv")
    assert list((tmp_path / "cache").iterdir())
