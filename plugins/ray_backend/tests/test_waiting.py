"""A task that no node runs: the wait for one is told, has an end, and sees that the cluster is
gone. A socket stands for gcs_server, and Ray answers as it does then."""

import logging
import os
import signal
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from distcore_core.errors import DistcoreError, Stopped
from distcore_ray import pulse, tasks
from distcore_ray.pulse import Lost, Pulse
from distcore_torch.signals import Stoppable

HEAD = {"Alive": True, "Resources": {"memory": 1.0}}
WORKER = {"Alive": True, "Resources": {"CPU": 1.0}}
DEAD = WORKER | {"Alive": False}


@pytest.fixture
def gcs():
    """A socket that listens, and the pulse that looks at it."""
    pulse.begin()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        yield server, Pulse(address, {"gcs_server": address}, {"gcs_server": 0.0}, "The work")
    pulse.begin()


@pytest.fixture
def asked(monkeypatch):
    """What Ray is asked: (how often a result is waited for in vain, the nodes each time after)."""

    def answers(*nodes):
        left = iter(nodes)
        found = {"nodes": None}

        def wait(references, timeout):
            found["nodes"] = next(left, None)
            return ([], references) if found["nodes"] is not None else (references, [])

        monkeypatch.setattr(tasks.ray, "wait", wait)
        monkeypatch.setattr(tasks.ray, "nodes", lambda: found["nodes"])

    monkeypatch.setattr(tasks, "TOLD_SECONDS", 0.0)
    return answers


def test_a_cluster_without_a_node_that_runs_tasks_is_waited_for_and_told_once(gcs, asked, caplog):
    asked([HEAD, DEAD], [HEAD, DEAD], [HEAD, DEAD, WORKER])
    with caplog.at_level(logging.WARNING, "distcore"):
        tasks._wait_for("reference", gcs[1], 600.0)
    assert caplog.text.count("that runs tasks is alive any more") == 1


def test_nothing_is_told_while_a_node_is_there(gcs, asked, caplog):
    asked([HEAD, WORKER, DEAD], [HEAD, WORKER, DEAD])
    tasks._wait_for("reference", gcs[1], 0.0)
    assert not caplog.text


def test_the_wait_for_a_node_has_an_end(gcs, asked):
    asked(*[[HEAD, DEAD]] * 1000)
    with pytest.raises(DistcoreError, match=r"no node with CPUs for 0 s.* backend\.patience"):
        tasks._wait_for("reference", gcs[1], 0.0)


def test_a_cluster_that_is_gone_is_told_before_ray_ends_this_process(gcs, asked):
    server, felt = gcs
    asked(*[[WORKER]] * 1000)
    server.close()
    with pytest.raises(Lost, match="The work stopped: the gcs_server of the Ray cluster"):
        tasks._wait_for("reference", felt, 600.0)


def mapped(pulse):
    return lambda: tasks._wait_for("reference", pulse, 600.0)


def dask(pulse):
    engines = pytest.importorskip("distcore_dask.engines")
    return lambda: engines.RayEngine.__new__(engines.RayEngine).run({}, "key")


def modin(pulse):
    engine = pytest.importorskip("distcore_modin.engine")
    made = engine.ModinEngine.__new__(engine.ModinEngine)
    made._wrapper = SimpleNamespace(materialize=lambda references: tasks.ray.get(references))
    return lambda: made.values(["reference"])


@pytest.mark.parametrize("waits", [mapped, dask, modin])
def test_a_signal_comes_once_and_as_it_is(gcs, monkeypatch, waits):
    """Where Ray waits in the main thread, it raises another KeyboardInterrupt in its place."""
    import ray.util.dask

    def wait(references, timeout=600.0, **_):
        try:
            time.sleep(timeout)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None
        return [], references

    for name in ("wait", "get"):
        monkeypatch.setattr(tasks.ray, name, wait)
    monkeypatch.setattr(tasks.ray, "nodes", lambda: [WORKER])
    monkeypatch.setattr(ray.util.dask, "ray_dask_get", lambda *_, **__: ["reference"])
    wait_for_it, caught = waits(gcs[1]), []
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    with Stoppable():
        timer.start()
        try:
            for work in (wait_for_it, lambda: time.sleep(1.5)):
                try:
                    work()
                except KeyboardInterrupt as error:
                    caught.append(error)
        finally:
            timer.cancel()
    assert [type(each) for each in caught] == [Stopped]
