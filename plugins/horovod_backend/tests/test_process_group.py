"""The processes of horovodrun and mpirun as one backend: tasks, worker groups, errors and rows."""

import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster
JOBS = str(Path(__file__).with_name("process_group_jobs.py"))


def said(launch, launcher, what, folder):
    """What the leader found; that it alone spoke, and that all ended well."""
    ran = launch.finish(launch.start([*launcher, sys.executable, JOBS, what, str(folder)], folder))
    assert ran.code == 0, ran.text
    lines = [line.partition("FOUND")[2] for line in ran.text.splitlines() if "FOUND" in line]
    assert len(lines) == 1, ran.text
    found = json.loads(lines[0])
    assert found.pop("rank") == 0
    return found


def test_tasks_are_shared_out_and_come_in_order(launch, tmp_path):
    """Also a second time, after an error, and in a script that never says that it is over."""
    found = said(launch, launch.horovodrun(2), "tasks", tmp_path)
    assert found["items"] == [list(range(19))] * 2
    assert found["processes"] == 2
    assert "str" in found["error"]
    assert found["none"] == []
    assert found["again"] == [9]
    assert (found["workers"], found["nodes"]) == (2, 1)


def test_a_worker_group_is_the_launchers_ranks(launch, tmp_path):
    found = said(launch, launch.mpirun(2), "group", tmp_path)
    assert found["members"] == found["again"] == [[0, 2, 0], [1, 2, 1]]


@pytest.mark.parametrize("launcher", ["horovodrun", "mpirun"])
def test_a_rank_that_raises_is_named_with_what_it_raised(launch, launcher, tmp_path):
    ran = launch.finish(
        launch.start(
            [*getattr(launch, launcher)(2), sys.executable, JOBS, "raising", str(tmp_path)],
            tmp_path,
        )
    )
    assert "rank 1 (process" in ran.text, ran.text
    assert "ValueError: rank one gives up" in ran.text, ran.text


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_every_rank_reads_its_share_and_shards_do_not_depend_on_it(launch, ranks, tmp_path):
    found = said(launch, launch.horovodrun(ranks), "rows", tmp_path)
    assert "rows 70 to 90 are damaged" in found.pop("error")
    for name, each in found.items():
        assert each.pop("merged") == [4950.0, 100], name
        assert each.pop("rows") == [
            [0, list(range(33))],
            [1, list(range(33, 66))],
            [2, list(range(66, 100))],
        ], name
        assert all(each.values()), (name, each)
