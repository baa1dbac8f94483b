"""One process and several Ray clusters one after another: with and without tokens, ours, Modin's
and Dask's."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ray_jobs
import ray_runs

from distcore_core.contracts import WorkerGroup
from distcore_ray.backend import RayBackend
from distcore_ray.options import BackendOptions
from distcore_testing.processors import digested

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def started_here(tmp_path, name, processor):
    """A cache that was built on a cluster that Modin's processor, or the backend, starts and
    ends."""
    backend = {"type": "local" if processor == "modin" else "ray", "processor": {"type": processor}}
    return digested(ray_runs.config_of(tmp_path, name, backend), str(tmp_path / "data.csv"))


def test_a_cluster_with_tokens_then_one_without_then_one_with(tmp_path, monkeypatch, request):
    """Ray keeps in a process how it talks to its clusters; each of ours is talked to in its own
    way."""
    import ray

    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    ray_runs.dataset(tmp_path)
    expected = digested(
        ray_runs.config_of(tmp_path, "here", {"type": "local"}), str(tmp_path / "data.csv")
    )
    assert started_here(tmp_path, "modin", "modin") == expected
    assert not ray.is_initialized()
    assert "RAY_AUTH_MODE" not in os.environ, "what Ray set for its session ends with it"

    request.getfixturevalue("nodes")
    for processor in ("dask", "modin"):
        backend = {"type": "ray", "processor": {"type": processor}}
        config = ray_runs.config_of(tmp_path, f"open-{processor}", backend)
        assert digested(config, str(tmp_path / "data.csv")) == expected
    made = RayBackend(BackendOptions())
    try:
        assert list(made.map(abs, [-1, 2])) == [1, 2]
        assert [
            each["RANK"] for each in made.run_group(WorkerGroup(function=ray_jobs.who, ranks=2))
        ] == ["0", "1"]
    finally:
        made.close()
