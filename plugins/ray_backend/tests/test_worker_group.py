"""Worker groups on a cluster: ranks that know who they are, the same bits for any number,
through deaths, and errors in words."""

import json
import logging
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ray_jobs

from distcore_core.contracts import WorkerGroup
from distcore_core.errors import DistcoreError, TrainingError, UserError
from distcore_core.progress import Progress
from distcore_data.os_errors import is_of_the_system
from distcore_local.backend import LocalBackend
from distcore_local.options import BackendOptions as LocalOptions
from distcore_ray.backend import RayBackend
from distcore_ray.options import BackendOptions
from distcore_testing.loops import TinyRun

# Three minutes; what `make clusters` shows of worker groups on Ray is in test_conformance.py and
# test_experiment.py.
pytestmark = [pytest.mark.cluster, pytest.mark.slow]

FIXED = {
    "effective_batch_size": 32,
    "batch_size": "auto",
    "learning_rate_scaling": "constant",
    "epochs": 3,
}
PLAIN = TinyRun(FIXED, strategy="distcore_local.data_parallel:DataParallel", dropout=0.0)
NOISY = replace(PLAIN, dropout=0.3, norm=True)


@pytest.fixture(scope="module")
def backend(nodes):
    made = RayBackend(BackendOptions())
    yield made
    made.close()


@pytest.fixture(scope="module")
def worlds(backend):
    """{world: [rank]{run: result}}"""
    runs = {"plain": PLAIN, "noisy": NOISY}
    return {
        world: backend.run_group(
            WorkerGroup(function=ray_jobs.several, arguments=(runs,), ranks=world, threads=1)
        )
        for world in (1, 2, 4)
    }


def global_batches(ranks, run):
    return [
        [row for part in step for row in part]
        for step in zip(*(rank[run]["seen"] for rank in ranks), strict=True)
    ]


@pytest.mark.parametrize("world", [2, 4])
def test_every_number_of_ranks_sees_the_same_global_batches_and_ends_with_one_set_of_weights(
    worlds, world
):
    for run in ("plain", "noisy"):
        assert global_batches(worlds[world], run) == global_batches(worlds[1], run)
        assert len({rank[run]["digest"] for rank in worlds[world]}) == 1
    one, many = worlds[1][0]["plain"]["state"]["best"], worlds[world][0]["plain"]["state"]["best"]
    assert many["step"] == one["step"]
    assert many["value"] == pytest.approx(one["value"], rel=1e-3)


def test_two_ranks_on_ray_have_the_bits_of_two_ranks_here(worlds):
    """And so the same as under any other launcher."""
    here = LocalBackend(LocalOptions()).run_group(
        WorkerGroup(
            function=ray_jobs.several,
            arguments=({"plain": PLAIN, "noisy": NOISY},),
            ranks=2,
            threads=1,
        )
    )
    for run in ("plain", "noisy"):
        assert here[0][run]["digest"] == worlds[2][0][run]["digest"]
        assert json.dumps(here[0][run]["state"]) == json.dumps(worlds[2][0][run]["state"])


def test_a_rank_killed_in_an_epoch_costs_nothing_but_time(backend, worlds, tmp_path, caplog):
    run = replace(NOISY, checkpoints=str(tmp_path / "checkpoints"), kill={1: 7})
    with caplog.at_level(logging.INFO, "distcore"):
        found = backend.run_group(
            WorkerGroup(
                function=ray_jobs.train_tiny, arguments=(run,), ranks=2, threads=1, max_retries=1
            )
        )
    assert found[0]["digest"] == worlds[2][0]["noisy"]["digest"]
    assert found[0]["state"]["statistics"] == worlds[2][0]["noisy"]["state"]["statistics"]
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    told = [each for each in told if not each.startswith("Waiting for")]  # a busy machine
    assert len(told) == 1
    assert "Rank 1 on node" in told[0]
    assert "was killed by SIGKILL. All ranks were started again (1 of at most 1 times)" in told[0]
    assert any(each.getMessage().startswith("Going on after step 5 (") for each in caplog.records)


def test_without_retries_an_exit_is_told_with_rank_node_and_code(backend):
    with pytest.raises(
        TrainingError, match=r"rank 1 on node [\d.]+ \(process \d+\) ended with exit code 7\.$"
    ):
        backend.run_group(WorkerGroup(function=ray_jobs.exit_with, arguments=(7,), ranks=2))


def test_what_no_restart_mends_is_raised_as_itself_and_not_tried_again(backend, tmp_path):
    with pytest.raises(UserError, match=r"^this was never right$"):
        backend.run_group(
            WorkerGroup(
                function=ray_jobs.refuse, arguments=(str(tmp_path),), ranks=2, max_retries=3
            )
        )
    assert len(list(tmp_path.glob("0-*"))) == 1


@pytest.mark.parametrize("told", [True, False])
def test_what_a_disk_did_to_a_rank_is_the_cause_of_what_is_raised(backend, told):
    with pytest.raises(DistcoreError, match=r"(?i)no space left on device") as caught:
        backend.run_group(
            WorkerGroup(function=ray_jobs.meet_a_full_disk, arguments=(told,), ranks=2)
        )
    assert is_of_the_system(caught.value)


def test_ranks_know_who_they_are_and_where_the_driver_was(backend):
    found = backend.run_group(WorkerGroup(function=ray_jobs.who, ranks=3))
    assert [each["rank"].index for each in found] == [0, 1, 2]
    assert [each["RANK"] for each in found] == ["0", "1", "2"]
    assert {each["WORLD_SIZE"] for each in found} == {"3"}
    assert {each["folder"] for each in found} == {str(Path.cwd())}
    assert len({each["MASTER_ADDR"] for each in found}) == 1
    assert {each["FOUND_BY"] for each in found} == {None}


def test_a_worker_group_may_bring_its_own_rendezvous(backend):
    group = WorkerGroup(
        function=ray_jobs.who,
        ranks=2,
        threads=2,
        rendezvous={"ray": "ray_jobs:rendezvous", "other": "x:y"},
    )
    found = backend.run_group(group)
    assert [each["FOUND_BY"] for each in found] == ["2 ranks"] * 2
    assert [each["OMP_NUM_THREADS"] for each in found] == ["2", "2"]
    assert [each["MASTER_ADDR"] for each in found] == [None, None]
    with pytest.raises(UserError, match="no_such_module:x, cannot be loaded"):
        backend.run_group(replace(group, rendezvous={"ray": "no_such_module:x"}))


def test_progress_and_log_lines_arrive_while_ranks_run(backend, caplog):
    shown = Progress()
    with (
        caplog.at_level(logging.INFO, "distcore"),
        backend.progress_channel(shown) as progress_channel,
    ):
        found = backend.run_group(
            WorkerGroup(
                function=ray_jobs.report, arguments=(progress_channel.reporter, 40), ranks=2
            )
        )
    assert found == [40, None]
    assert shown.stages_finished[-1][:2] == ("train", 400)
    assert shown.rounds == [ray_jobs.a_round(1), ray_jobs.a_round(2)]
    told = [each.getMessage() for each in caplog.records]
    assert "rank 0 has begun" in told
    assert "rank 0 is warned" in told
    assert "Rank 1: rank 1 is warned" in told
    assert not [each for each in told if "rank 1 has begun" in each], (
        "only warnings come from other ranks"
    )


def test_a_cluster_whose_nodes_are_starting_or_lost_is_waited_for(backend):
    """A search's trials failed at once while the one node with processors was away."""
    import ray  # not by who collects the tests: it registers its types with Arrow

    from distcore_ray.worker_group import refuse_impossible

    backend.resources()  # which connects
    nodes = [{**node, "Resources": {"memory": 1.0}} for node in ray.nodes()]
    lost = [{**node, "Alive": False} for node in ray.nodes()]
    for found in (nodes, lost, []):
        refuse_impossible(WorkerGroup(function=ray_jobs.who, ranks=2), found)


def test_a_worker_group_that_never_fits_is_refused_with_the_arithmetic(backend):
    before = time.monotonic()
    with pytest.raises(
        UserError,
        match=r"9 workers of \{CPU: 1\} each do not fit .* where 6 do \(.*CPU: 2; .*CPU: 2",
    ):
        backend.run_group(WorkerGroup(function=ray_jobs.who, ranks=9))
    with pytest.raises(UserError, match=r"2 workers of \{CPU: 1, GPU: 1\} each do not fit"):
        backend.run_group(WorkerGroup(function=ray_jobs.who, ranks=2, use_gpu=True))
    with pytest.raises(UserError, match=r"2 workers of \{CPU: 1, tpu: 0\.5\}"):
        backend.run_group(
            WorkerGroup(function=ray_jobs.who, ranks=2, resources_per_worker={"tpu": 0.5})
        )
    assert time.monotonic() - before < 60, "it was tried"
