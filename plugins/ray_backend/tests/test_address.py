"""Which cluster is found: never one that is not there, never with a long wait, and never one
that is open to others."""

import logging
import os
import platform
import pwd
import re
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from distcore_core.errors import ConfigError, UserError
from distcore_core.registry.manager import Plugins
from distcore_ray import address, cluster, head
from distcore_ray.backend import RayBackend
from distcore_ray.diagnose import checks
from distcore_ray.options import BackendOptions


@pytest.fixture
def listening():
    """A port where something accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def free():
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return port


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))


def leave(folder, text):
    (folder / "ray").mkdir(exist_ok=True)
    (folder / "ray" / "ray_current_cluster").write_text(text)


def detected(**environment):
    return address.detect({"RAY_TMPDIR": os.environ["RAY_TMPDIR"], **environment})


def test_nothing_is_found_where_nothing_is():
    assert detected() is None
    assert cluster.target(BackendOptions()) is None


def test_inside_a_worker_comes_before_an_address_and_that_before_a_file(tmp_path, listening):
    leave(tmp_path, f"127.0.0.1:{listening}")
    file = detected()
    named = detected(RAY_ADDRESS="10.0.0.1:6379")
    inside = detected(RAY_ADDRESS="10.0.0.1:6379", RAY_JOB_ID="01", RAY_RAYLET_PID="7")
    assert [each.address for each in (file, named, inside)] == [
        f"127.0.0.1:{listening}",
        *2 * ["10.0.0.1:6379"],
    ]
    assert file.priority < named.priority < inside.priority
    assert str(tmp_path) in file.reason
    assert named.reason == "RAY_ADDRESS is 10.0.0.1:6379"
    assert "RAY_RAYLET_PID" in inside.reason
    assert detected(RAY_ADDRESS="auto") == file


@pytest.mark.parametrize(
    "text",
    [
        *["127.0.0.1:{free}", "no address", "127.0.0.1:", ":1", "\x00", "127.0.0.1:99999", ""],
        *["head:²", ".head:6379"],
    ],
)
def test_a_stale_file_is_not_believed_and_costs_nothing(tmp_path, free, text, caplog):
    leave(tmp_path, text.format(free=free))
    before = time.process_time()
    with caplog.at_level(logging.INFO, "distcore"):
        assert detected() is None
    assert time.process_time() - before < 1
    assert ("it is not used" in caplog.text) == bool(text)
    assert cluster.target(BackendOptions()) is None


def test_a_host_that_swallows_packets_does_not_hang(tmp_path):
    """192.0.2.0/24 is nobody's; a firewall that drops packets looks the same."""
    leave(tmp_path, "192.0.2.77:6379")
    before = time.monotonic()
    assert detected() is None
    assert time.monotonic() - before < 30


def test_a_file_of_another_user_is_not_ours(tmp_path, listening, monkeypatch):
    leave(tmp_path, f"127.0.0.1:{listening}")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert detected() is None


def test_what_ray_address_names_and_is_not_there_is_an_error(free, monkeypatch):
    """Not a run on this machine that nobody wanted."""
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free}")
    with pytest.raises(
        UserError,
        match=rf"no Ray cluster at 127.0.0.1:{free} \(RAY_ADDRESS is .*\): nothing answers",
    ):
        cluster.target(BackendOptions())


SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
"""A gRPC server's first frame, when it has nothing to set."""

ANSWERS = {
    "silent": (b"", r"accepts connections, but says nothing within"),
    "web": (
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        r"a web server, not a Ray cluster's head \(its port is 6379",
    ),
    "ssh": (b"SSH-2.0-OpenSSH_9.2\r\n", r"not a Ray cluster's head"),
    "gone": (None, r"not a Ray cluster's head|breaks the connection off"),
}


@pytest.fixture
def answering():
    """answering(content): the port of a server that sends this to whoever connects; None: it
    hangs up."""
    servers, held = [], []

    def accept(server, content):
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                if content is None:
                    connection.close()
                else:
                    held.append(connection)
                    connection.sendall(content)

    def start(content):
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)
        threading.Thread(target=accept, args=(server, content), daemon=True).start()
        return server.getsockname()[1]

    yield start
    for each in [*servers, *held]:
        each.close()


@pytest.mark.parametrize("kind", ANSWERS)
def test_what_answers_and_is_no_cluster_is_told_by_its_address(answering, monkeypatch, kind):
    """`ray.init()` would wait for minutes; `plan` and `doctor` look no longer than a run does."""
    monkeypatch.setattr(address.greet, "__defaults__", (0.5 if kind == "silent" else 60.0,))
    content, expected = ANSWERS[kind]
    port = answering(content)
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    with pytest.raises(
        UserError,
        match=rf"no Ray cluster at 127.0.0.1:{port} \(RAY_ADDRESS is .*\): .*({expected})",
    ):
        cluster.target(BackendOptions())
    with pytest.raises(UserError, match=expected):
        RayBackend(BackendOptions()).resources()
    (told,) = [each for each in checks() if each[0] == "cluster"]
    assert not told[1]
    assert re.search(expected, told[2])


@pytest.mark.parametrize("kind", ["web", "ssh", "gone"])
def test_an_address_file_whose_port_has_another_owner_is_not_believed(
    tmp_path, answering, caplog, kind, monkeypatch
):
    monkeypatch.setattr(address, "PROBE_SECONDS", 60.0)  # a busy machine answers late
    leave(tmp_path, f"127.0.0.1:{answering(ANSWERS[kind][0])}")
    with caplog.at_level(logging.INFO, "distcore"):
        assert detected() is None
    assert "it is not used" in caplog.text


def test_a_cluster_that_is_slow_to_greet_is_found_and_waited_for(tmp_path, answering, monkeypatch):
    """On a busy machine a head does not answer within the quarter of a second that detection
    takes."""
    monkeypatch.setattr(address.greet, "__defaults__", (0.5,))
    leave(tmp_path, f"127.0.0.1:{answering(b'')}")
    assert detected() is not None
    with pytest.raises(UserError, match=r"says nothing within 0.5 s.*backend.address to local"):
        cluster.target(BackendOptions())


def test_a_head_that_greets_and_then_stands_still_is_given_up(answering, monkeypatch):
    monkeypatch.setattr(head, "ASK_SECONDS", 1.0)
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{answering(SETTINGS)}")
    with pytest.raises(
        UserError,
        match=r"cannot be joined: its head accepts connections, but has not answered within 1",
    ):
        RayBackend(BackendOptions()).resources()


def test_a_cluster_of_another_ray_or_python_is_refused_with_both_versions():
    import ray

    python = platform.python_version()
    head.refuse_other_versions(
        "It cannot be joined", {"ray_version": ray.__version__, "python_version": python}
    )
    with pytest.raises(
        UserError,
        match=rf"started with Ray 2.9.3 and Python {python}, but here are Ray {ray.__version__}",
    ):
        head.refuse_other_versions(
            "It cannot be joined", {"ray_version": "2.9.3", "python_version": python}
        )
    with pytest.raises(UserError, match=r"and Python 3.9.1, but here"):
        head.refuse_other_versions(
            "It cannot be joined", {"ray_version": ray.__version__, "python_version": "3.9.1"}
        )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("http://127.0.0.1:8265", r"job server .*ray job submit"),
        ("https://cluster:8265", r"job server"),
        ("ray://127.0.0.1:10001", r"Ray Client cannot train"),
    ],
)
def test_addresses_that_cannot_train_say_what_to_do(monkeypatch, value, expected):
    monkeypatch.setenv("RAY_ADDRESS", value)
    with pytest.raises(UserError, match=expected):
        cluster.target(BackendOptions())


def test_ray_address_local_starts_one_here(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert cluster.target(BackendOptions()) is None


def test_auto_without_a_cluster_says_what_was_looked_at(tmp_path, free):
    with pytest.raises(
        UserError,
        match="no Ray cluster is found here: RAY_ADDRESS is not set, and there is no address",
    ):
        cluster.target(BackendOptions(address="auto"))
    leave(tmp_path, f"127.0.0.1:{free}")
    with pytest.raises(
        UserError, match=rf"ray_current_cluster names 127.0.0.1:{free}, where nothing answers there"
    ):
        cluster.target(BackendOptions(address="auto"))


def test_an_open_cluster_is_refused_unless_told(monkeypatch):
    found = address.Found("10.1.2.3:6379", "RAY_ADDRESS is 10.1.2.3:6379", 80)
    with pytest.raises(
        UserError,
        match=r"If it asks for one.* set RAY_AUTH_MODE=token here too.*allow_open_cluster: true",
    ):
        cluster.refuse_open(found, BackendOptions())
    cluster.refuse_open(found, BackendOptions(allow_open_cluster=True))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(UserError, match="no token"):
        cluster.refuse_open(found, BackendOptions())
    monkeypatch.setenv("RAY_AUTH_MODE", "Token")
    cluster.refuse_open(found, BackendOptions())
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("DISTCORE_RAY_ALLOW_OPEN_CLUSTER", "1")
    cluster.refuse_open(found, BackendOptions())


@pytest.mark.parametrize(
    ("text", "near"),
    [
        *[("127.0.0.1:1", True), ("127.8.8.8:1", True), ("localhost:1", True), ("[::1]:1", True)],
        *[("10.0.0.1:1", False), ("0.0.0.0:1", False), ("head:1", False), ("[fe80::1]:1", False)],
    ],
)
def test_loopback(text, near):
    assert address.is_loopback(text) == near


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"address": "head"}, "host:port, auto or local"),
        ({"address": "head:²"}, "host:port, auto or local"),
        ({"address": "ray://head:10001"}, "Ray Client"),
        ({"address": "http://head:8265"}, "ray job submit"),
        (
            {"address": "head:6379", "num_cpus": 2},
            "num_cpus are for a cluster that is started here",
        ),
        ({"num_cpu": 2}, "num_cpus"),
        ({"patience": 0}, "patience"),
    ],
)
def test_wrong_options_are_told(options, expected):
    with pytest.raises(ConfigError, match=expected):
        Plugins().validate("backends", "ray", options)


@pytest.mark.parametrize("size", [{"num_cpus": 2}, {"num_gpus": 0}])
def test_sizes_for_a_cluster_that_is_joined_are_an_error(monkeypatch, listening, size):
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{listening}")
    with pytest.raises(UserError, match="there is one to join: RAY_ADDRESS"):
        cluster.target(BackendOptions(**size))


def test_without_a_home_folder_doctor_and_runs_say_so(monkeypatch):
    """Ray's libraries said "Could not determine home directory", and doctor's own check failed."""
    monkeypatch.delenv("HOME")

    def nobody(uid):
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert ("home", False) in [each[:2] for each in checks()]
    with pytest.raises(UserError, match="set HOME to a folder of yours, or run with"):
        cluster.connect(BackendOptions())


def test_the_doctor_names_a_stale_file(tmp_path, free):
    leave(tmp_path, f"127.0.0.1:{free}")
    (told,) = [each for each in checks() if each[0] == "cluster"]
    assert not told[1]
    assert "remove that file" in told[2]


def test_a_hidden_gpu_is_none_of_the_cluster_that_would_be_started(monkeypatch):
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: iter([folder / "nvidia0"]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert cluster.resources_here(BackendOptions()).gpus == 0


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_interface_of_an_address_of_either_family_is_found(address):
    from distcore_torch.training.meeting import interface_of

    try:
        socket.create_server(
            (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET
        ).close()
    except OSError:
        pytest.skip(f"this machine has no {address}")
    assert interface_of(address) == ("lo" if sys.platform == "linux" else "lo0")
