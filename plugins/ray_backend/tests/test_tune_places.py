"""Which places on a cluster are given back, and by whom."""

from importlib import import_module
from types import SimpleNamespace

from ray.core.generated import gcs_pb2

from distcore_core.contracts import WorkerGroup
from distcore_ray import worker_group
from distcore_ray.tune_places import free_places_of_the_dead

MINE, ENDED, OTHERS = b"\1\0\0\0", b"\2\0\0\0", b"\3\0\0\0"


def place(number, job, dead=False, detached=False):
    return gcs_pb2.PlacementGroupTableData(
        placement_group_id=bytes([number]) * 18,
        state=gcs_pb2.PlacementGroupTableData.CREATED,
        creator_job_id=job,
        creator_actor_id=bytes([number]) * 16,
        creator_actor_dead=dead,
        is_detached=detached,
    ).SerializeToString()


def test_places_of_dead_trials_and_of_jobs_that_ended_are_freed(monkeypatch):
    """Ray kept what was reserved as a search was stopped, and who went on with it waited for it."""
    job = gcs_pb2.JobTableData(job_id=ENDED, is_dead=True).SerializeToString()
    places = [
        place(1, MINE),
        place(2, MINE, dead=True),
        place(3, ENDED),
        place(4, ENDED, detached=True),
        place(5, OTHERS, dead=True),
    ]
    accessor = SimpleNamespace(
        get_placement_group_table=lambda: places, get_job_table=lambda **_: [job]
    )
    freed = []
    state = "ray._private.state.state._connect_and_get_accessor"
    monkeypatch.setattr(state, lambda: accessor)
    monkeypatch.setattr(
        "ray.get_runtime_context", lambda: SimpleNamespace(get_job_id=lambda: MINE.hex())
    )
    module = import_module("ray.util.placement_group")  # as an attribute it is a function
    monkeypatch.setattr(
        module, "remove_placement_group", lambda group: freed.append(group.id.binary()[0])
    )
    free_places_of_the_dead()
    assert freed == [2, 3]


def test_no_process_is_left_to_look_after_them(tmp_path):
    """Ray's own outlived each stopped trial by the cluster's life, where there is no dashboard."""
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    group = WorkerGroup(function=print, arguments=(), ranks=2, threads=1)
    trainer = worker_group._trainer(group, None, str(tmp_path))
    ours, rays = (
        [type(each).__name__ for each in kind._create_default_callbacks(trainer)]
        for kind in (type(trainer), DataParallelTrainer)
    )
    assert [name for name in rays if name not in ours] == ["PlacementGroupCleanerCallback"]
    assert len(ours) == len(rays) - 1
