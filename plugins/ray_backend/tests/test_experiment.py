"""Whole runs on a cluster: the same cache and the same training as here, through kills, and an
end where they go on."""

import os
import re
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ray_runs
from ray_runs import LONG, cache, train, weights

import distcore
from distcore.workflow import run
from distcore_core.errors import TrainingError
from distcore_data.stores import Credentials
from distcore_data.stores.run_sync import Mirror
from distcore_testing.buckets import BUCKET, s3_server

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def two_here(place):
    """A run of two ranks on this machine that nobody disturbs."""
    return train(
        place,
        "two-here",
        {"type": "local", "trainer": {"type": "data_parallel", "num_workers": 2}},
        LONG,
    )


def killing_rank_one(nodes, folder, times):
    """A thread that kills rank 1 of the run in this folder: after the first checkpoint, and as
    often as it comes back. Until then training is slow."""
    nodes.brake.apply(after=60)

    def kill():
        ray_runs.until(lambda: ray_runs.checkpoints(folder))
        killed = {None}
        for _ in range(times):
            (pid,) = ray_runs.until(lambda: {ray_runs.ranks().get(1)} - killed)
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        nodes.brake.release()

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def test_cache_and_weights_are_those_of_this_machine_also_where_a_rank_is_killed(
    nodes, place, two_here, caplog
):
    killer = killing_rank_one(nodes, place / "killed_run", 1)
    found = train(
        place, "killed", {"type": "ray", "trainer": {"num_workers": 2, "max_retries": 2}}, LONG
    )
    killer.join()
    assert (
        "was killed by SIGKILL. All ranks were started again (1 of at most 2 times)" in caplog.text
    )
    assert cache(place, "killed") == cache(place, "two-here")
    assert weights(found.directory) == weights(two_here.directory)


@pytest.mark.slow
def test_cache_and_results_in_a_bucket_need_no_folder_that_nodes_share(
    place, two_here, monkeypatch, caplog
):
    """The weights are those of this machine, also if a rank is killed and another goes on from
    the bucket."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    make = run.train_job

    def job(*given):
        """As on another machine: the folder that the driver works in is not there."""
        made = make(*given)
        return replace(made, directory=Path("/no/such/machine", made.directory.name))

    monkeypatch.setattr(run, "train_job", job)
    with s3_server() as (proxy, _):
        backend = {"type": "ray", "trainer": {"num_workers": 2, "max_retries": 2}}
        config = ray_runs.config_of(place, "bucket", backend, LONG)
        config["backend"] |= {
            "cache_dir": f"s3://{BUCKET}/caches",
            "cache_credentials": proxy.options(),
        }

        def kill():
            ray_runs.until(lambda: proxy.count("PUT", "checkpoints/step-00000080/manifest.json"))
            os.kill(ray_runs.ranks()[1], signal.SIGKILL)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        found = distcore.train(
            config,
            dataset=place / "data.csv",
            output_directory=f"s3://{BUCKET}/results",
            view="none",
        )
        killer.join()
        assert "All ranks were started again (1 of at most 2 times)" in caplog.text
        assert found.directory == f"s3://{BUCKET}/results/experiment_run"
        copied = place / "copied"
        mirror = Mirror.at(found.directory, Credentials(proxy.options()))
        mirror.get_folder("model", copied / "model", "model.json")
        mirror.get_file("training_statistics.json", copied / "training_statistics.json")
    assert weights(copied) == weights(two_here.directory)
    assert not (place / "cache-bucket").exists()


@pytest.mark.slow
def test_one_config_gives_one_cache_and_one_training_for_any_workers_and_processor(place):
    here = train(place, "here", {"type": "local"})
    expected = cache(place, "here")
    for workers, processor in ((1, "dask"), (2, "modin"), (4, "local")):
        name = f"ray-{workers}"
        trainer = {"num_workers": workers}
        found = train(
            place, name, {"type": "ray", "processor": {"type": processor}, "trainer": trainer}
        )
        assert cache(place, name) == expected
        for metric in ("loss", "accuracy", "roc_auc"):
            curve = found.training_statistics["validation"]["y"][metric]
            assert curve == pytest.approx(
                here.training_statistics["validation"]["y"][metric], rel=2e-3
            ), (name, metric)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("retries", "told"), [(0, "Training stopped"), (1, "Training stopped after 1 restart")]
)
def test_with_no_retry_left_the_error_names_rank_node_signal_and_checkpoint(
    nodes, place, retries, told
):
    name = f"over-{retries}"
    killer = killing_rank_one(nodes, place / f"{name}_run", 1 + retries)
    with pytest.raises(TrainingError) as caught:
        train(
            place,
            name,
            {"type": "ray", "trainer": {"num_workers": 2, "max_retries": retries}},
            LONG | {"epochs": 100_000},
        )
    killer.join()
    expected = (
        told + r": rank 1 on node [\d.]+ \(process \d+\) was killed by SIGKILL\. "
        r"The last checkpoint is (.*/step-\d{8}); go on from it with --model_resume_path (.*)"
    )
    found = re.fullmatch(expected, str(caught.value))
    assert found, str(caught.value)
    assert found[2] == str(place / f"{name}_run")
    assert Path(found[1]).name == max(ray_runs.checkpoints(place / f"{name}_run"))
    ray_runs.until(lambda: not ray_runs.ranks(), 60)
