"""Which backend a command takes where none is named."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from distcore.workflow.backend_choice import choose_backend, make_backend
from distcore_core.contracts import Detection
from distcore_core.errors import PluginBroken, UserError
from distcore_core.registry.manager import Plugins
from distcore_horovod.launcher import IN_GROUP

LAUNCHED = {
    "HOROVOD_RANK": "0",
    "HOROVOD_SIZE": "4",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
}


class Broken(Plugins):
    """Plugins of which the backend `horovod` cannot be loaded."""

    def load(self, kind, name):
        if (kind, name) == ("backends", "horovod"):
            raise PluginBroken("distcore-horovod 1.0 is not as it was locked. Reinstall it.")
        return super().load(kind, name)


@pytest.fixture(autouse=True)
def nothing_detected(monkeypatch):
    for name in (*LAUNCHED, "RAY_ADDRESS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    plugin = Plugins().load("backends", "ray")
    monkeypatch.setattr(plugin, "distcore_detect", lambda: None)  # a cluster of other tests


def launched(monkeypatch):
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)


def test_a_launchers_processes_that_no_backend_joins_are_refused(monkeypatch):
    launched(monkeypatch)
    said = r"horovodrun started 4 processes.*horovod cannot be asked.*as it was locked"
    with pytest.raises(UserError, match=said):
        choose_backend(None, Broken())
    assert choose_backend("local", Broken())[0] == "local"
    assert choose_backend(None, Plugins())[0] == "horovod"


def test_one_that_is_found_beside_a_broken_one_joins_no_launchers_processes(monkeypatch, caplog):
    plugin = Plugins().load("backends", "ray")
    found = Detection(backend="ray", priority=80, reason="RAY_ADDRESS is set")
    monkeypatch.setattr(plugin, "distcore_detect", lambda: found)
    assert choose_backend(None, Broken())[0] == "ray", "nobody launched it"
    launched(monkeypatch)
    with pytest.raises(UserError, match=r"horovodrun started 4 processes.*as it was locked"):
        choose_backend(None, Broken())
    stronger = replace(found, priority=90, reason="inside a Ray worker")
    monkeypatch.setattr(plugin, "distcore_detect", lambda: stronger)
    assert choose_backend(None, Broken())[0] == "ray", "whatever Horovod would have said"
    monkeypatch.setattr(plugin, "distcore_detect", lambda: 1 / 0)
    assert choose_backend(None, Plugins())[0] == "horovod"
    assert "ray cannot be asked whether it is meant here: division by zero" in caplog.text


def test_a_rank_of_a_trainer_was_started_by_no_launcher(monkeypatch):
    launched(monkeypatch)
    monkeypatch.setenv(IN_GROUP, "1")
    assert choose_backend(None, Plugins())[0] == "local"


def test_torchruns_processes_and_one_alone_are_not_refused(monkeypatch, caplog):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PMI_SIZE"):
        monkeypatch.setenv(name, "2")
    assert choose_backend(None, Plugins())[0] == "local"
    monkeypatch.delenv("RANK")
    monkeypatch.setenv("PMI_SIZE", "1")
    assert choose_backend(None, Plugins())[0] == "local"
    assert not caplog.records


def test_a_broken_backend_that_nobody_asked_for_is_told_and_stops_nothing(caplog):
    assert choose_backend(None, Broken())[0] == "local"
    assert "horovod cannot be asked whether it is meant here: distcore-horovod" in caplog.text


@pytest.mark.parametrize("backend", ["local", "horovod", "ray"])
@pytest.mark.parametrize(
    ("more", "warns"),
    [
        ({}, True),
        ({"SLURM_STEP_NUM_TASKS": "1"}, False),
        ({"RAY_RAYLET_PID": "7"}, False),  # `ray start` by srun
        ({"HOROVOD_SIZE": "1"}, False),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, False),
    ],
)
def test_a_task_of_srun_among_others_says_that_it_makes_a_run_of_its_own(
    monkeypatch, caplog, backend, more, warns
):
    """Slurm's default tells no MPI of the others, so nothing else shows that there are any."""
    for name, value in ({"SLURM_STEP_NUM_TASKS": "4"} | more).items():
        monkeypatch.setenv(name, value)
    make_backend(Plugins(), backend, {})
    told = f"srun started 4 tasks, and the backend `{backend}`"
    assert (told in caplog.text) is warns


def test_a_backend_that_joins_the_tasks_of_srun_is_not_warned_of(monkeypatch, caplog):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    joined = SimpleNamespace(distributed=True, follow=lambda: None)
    make_backend(SimpleNamespace(make=lambda *_: joined), "ours", {})
    assert "srun" not in caplog.text
