"""Tasks that no node runs, a prediction's and a processor's: the wait for them is told, has an end,
and sees that the cluster is gone. A socket stands for gcs_server, and Ray answers as it does then."""

import logging
import os
import signal
import socket
import threading
import time
from types import SimpleNamespace

import pytest
import ray
import ray.util.dask

from distcore_core.errors import DistcoreError, Stopped
from distcore_data import waiting
from distcore_ray import pulse, tasks, tune, watch, worker_group
from distcore_ray.backend import RayBackend
from distcore_ray.coordinator import News
from distcore_ray.options import BackendOptions
from distcore_ray.pulse import Lost, Pulse
from distcore_torch.signals import Stoppable

HEAD = {"Alive": True, "Resources": {"memory": 1.0}}
WORKER = {"Alive": True, "Resources": {"CPU": 1.0}}
DEAD = WORKER | {"Alive": False}


@pytest.fixture
def gcs(monkeypatch):
    """A socket that listens, and the pulse that looks at it."""
    pulse.begin()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        made = Pulse(address, {"gcs_server": address}, {"gcs_server": 0.0}, "The work")
        monkeypatch.setattr(Pulse, "of_this_process", lambda _: made)
        yield server
    pulse.begin()


@pytest.fixture
def connected(gcs, monkeypatch):
    """Makes a backend that is connected, given its patience."""
    made = []

    def connect(patience):
        made.append(RayBackend(BackendOptions(patience=patience)))
        made[-1].connect()

    monkeypatch.setattr("distcore_ray.cluster.connect", lambda options: None)
    yield connect
    for each in made:
        each.close()
    assert not waiting.watches


@pytest.fixture
def asked(monkeypatch):
    """What Ray is asked: (how often a result is waited for in vain, the nodes each time after)."""

    def answers(*nodes):
        left = iter(nodes)
        found = {"nodes": [WORKER]}

        def wait(references, **_):
            nodes = next(left, None)
            if nodes is None:
                return references, []
            found["nodes"] = nodes
            return [], references

        monkeypatch.setattr(ray, "wait", wait)
        monkeypatch.setattr(ray, "nodes", lambda: found["nodes"])

    monkeypatch.setattr(watch, "TOLD_SECONDS", 0.0)
    return answers


def mapped():
    return next(tasks.run(abs, [7], lambda: 1))


def dask():
    engines = pytest.importorskip("distcore_dask.engines")
    return engines.RayEngine.__new__(engines.RayEngine).run({}, "key")[0]


def modin():
    engine = pytest.importorskip("distcore_modin.engine")
    made = engine.ModinEngine.__new__(engine.ModinEngine)
    made._wrapper = SimpleNamespace(materialize=lambda references: [ray.get(*references)])
    return made.values(["reference"])[0]


@pytest.fixture(params=[mapped, dask, modin], ids=lambda each: each.__name__)
def work(request, monkeypatch):
    """One who has a task run on Ray and waits for its result, which is 7."""
    task = SimpleNamespace(remote=lambda *_: "reference")
    monkeypatch.setattr(ray, "remote", lambda **_: lambda function: task)
    monkeypatch.setattr(ray, "put", lambda value: value)
    monkeypatch.setattr(ray, "cancel", lambda reference: None)
    monkeypatch.setattr(ray, "get", lambda reference: 7)
    monkeypatch.setattr(tasks.Place, "here", lambda: None)
    monkeypatch.setattr(ray.util.dask, "ray_dask_get", lambda *_, **__: ["reference"])
    return request.param


def test_a_cluster_without_a_node_that_runs_tasks_is_waited_for_and_told_once(
    connected, asked, work, caplog
):
    asked([HEAD, DEAD], [HEAD, DEAD], [HEAD, DEAD, WORKER])
    connected(600.0)
    with caplog.at_level(logging.WARNING, "distcore"):
        assert work() == 7
    assert caplog.text.count("that runs tasks is alive any more") == 1


def test_nothing_is_told_while_a_node_is_there(connected, asked, work, caplog):
    asked([HEAD, WORKER, DEAD], [HEAD, WORKER, DEAD])
    connected(1e-9)
    assert work() == 7
    assert not caplog.text


def test_the_wait_for_a_node_has_an_end(connected, asked, work):
    asked(*[[HEAD, DEAD]] * 1000)
    connected(1e-9)
    with pytest.raises(DistcoreError, match=r"no node with CPUs for 0 s.* backend\.patience"):
        work()


def test_a_cluster_that_is_gone_is_told_before_ray_ends_this_process(connected, gcs, asked, work):
    asked(*[[WORKER]] * 1000)
    connected(600.0)
    gcs.close()
    with pytest.raises(Lost, match="The work stopped: the gcs_server of the Ray cluster"):
        work()


def test_so_is_one_that_ray_itself_waits_for(connected, gcs, asked, work, monkeypatch):
    connected(600.0)
    monkeypatch.setattr(ray, "wait", lambda *_, **__: threading.Event().wait())
    gcs.close()
    with pytest.raises(Lost, match="The work stopped: the gcs_server of the Ray cluster"):
        work()


def test_a_signal_comes_once_and_as_it_is(connected, work, monkeypatch):
    """Where Ray waits in the main thread, it raises another KeyboardInterrupt in its place."""

    def wait(references, timeout=600.0, **_):
        try:
            time.sleep(timeout)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None
        return [], references

    for name in ("wait", "get"):
        monkeypatch.setattr(ray, name, wait)
    monkeypatch.setattr(ray, "nodes", lambda: [WORKER])
    connected(600.0)
    caught = []
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    with Stoppable():
        timer.start()
        try:
            for each in (work, lambda: time.sleep(1.5)):
                try:
                    each()
                except KeyboardInterrupt as error:
                    caught.append(error)
        finally:
            timer.cancel()
    assert [type(each) for each in caught] == [Stopped]


def test_a_cluster_that_grows_gets_more_tasks_and_one_that_shrinks_fewer(monkeypatch):
    """They were counted once, from the nodes that were there at first."""
    under_way, seen, cpus = [], [], iter([1, 1, 3, 1, 1, 1, 1, 1, 1, 1])

    def remote(shared, item):
        under_way.append(item)
        return item

    def get(item):
        seen.append(len(under_way))
        under_way.remove(item)
        return item

    monkeypatch.setattr(ray, "remote", lambda **_: lambda function: SimpleNamespace(remote=remote))
    monkeypatch.setattr(ray, "wait", lambda references, **_: (references, []))
    monkeypatch.setattr(ray, "put", lambda value: value)
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(tasks, "packed", lambda value: value)
    monkeypatch.setattr(tasks, "PULSE_SECONDS", -1.0)
    assert list(tasks.run(abs, range(9), lambda: next(cpus))) == list(range(9))
    assert seen == [2, 2, 6, 5, 4, 3, 2, 2, 1]


def test_a_search_ends_where_no_node_is_left_or_the_cluster_is_gone(connected, gcs, asked):
    """And Tune with it, which would wait for ever."""
    fit, over = {}, threading.Event()

    def waits():
        fit["ended"] = over.wait(60)

    asked([HEAD, DEAD])
    ray.wait(["reference"])
    connected(1e-9)
    with pytest.raises(DistcoreError, match="no node with CPUs for 0 s"):
        tune._fitted(SimpleNamespace(fit=waits), over)
    assert fit.pop("ended")
    over.clear()
    gcs.close()
    with pytest.raises(Lost, match="the gcs_server of the Ray cluster"):
        tune._fitted(SimpleNamespace(fit=waits), over)
    assert fit.pop("ended")


def test_what_a_search_raises_is_raised_as_it_is():
    def stopped():
        raise Stopped("so far", signal.SIGTERM)

    with pytest.raises(Stopped) as caught:
        tune._fitted(SimpleNamespace(fit=stopped), threading.Event())
    assert caught.value.signal == signal.SIGTERM


def test_workers_that_wait_have_the_places_of_dead_trials_freed(monkeypatch):
    """The best trial of a search is trained again for its model once Tune is over, which alone
    had freed them: its workers waited for places that nobody held, until `patience` was over."""
    freed = []
    monkeypatch.setattr(worker_group, "free_places_of_the_dead", lambda: freed.append(1))
    seen = worker_group._Watch(None, None, 100.0, SimpleNamespace(during=lambda call: call()))
    seen.told_of_room = True
    seen._look(News())
    assert not freed
    seen.freed -= worker_group.FREE_SECONDS + 1
    seen._look(News())
    seen._look(News())
    assert freed == [1]
