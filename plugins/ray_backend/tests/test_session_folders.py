"""Which folders of Ray's go with a session: no cluster is started."""

import os
from types import SimpleNamespace

import pytest
from ray._private import worker

from distcore_ray import session


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Two sessions that began after ours was opened: ours, and that of a process with our number in
    another container."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(session, "leave", lambda: None)
    opened = session.Session(starting=True)
    folders = [tmp_path / "ray" / f"session_{day}_{os.getpid()}" for day in ("2026-1", "2026-2")]
    for each in folders:
        (each / "logs").mkdir(parents=True)
    node = SimpleNamespace(get_session_dir_path=lambda: str(folders[0]), all_processes={})
    monkeypatch.setattr(worker, "_global_node", node)
    yield opened, *folders
    session.settings.end(opened._settings)


def test_the_session_of_another_container_stays(begun):
    opened, own, another = begun
    opened.started()
    opened.end_processes(keep=True)
    assert own.exists()
    opened.end_processes(keep=False)
    assert another.exists()
    assert not own.exists()


def test_a_cluster_that_was_joined_leaves_every_folder(begun):
    opened, *folders = begun
    opened.starting = False
    opened.end_processes(keep=False)
    assert all(each.exists() for each in folders)


def test_of_a_cluster_that_did_not_start_nothing_stays(begun, monkeypatch):
    opened, *folders = begun
    monkeypatch.setattr(worker, "_global_node", None)
    opened.end_processes(keep=False)
    assert not any(each.exists() for each in folders)
