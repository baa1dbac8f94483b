"""What is found of a Horovod and of the tools that build one, how ranks meet in it, what travels and
how orders do, where none is installed: packages and tools here are files that a test writes, and
ranks are threads."""

import importlib.metadata
import os
import signal
import socket
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import cloudpickle
import psutil
import pytest
import torch
from torch.distributed import HashStore

from distcore_core.contracts import Rank, ShardPlan, WorkerGroup
from distcore_core.errors import CacheError, Stopped, TrainingError, UserError
from distcore_data.waiting import in_thread
from distcore_horovod import (
    addresses,
    build,
    diagnose,
    installed,
    process_group,
    processor,
    rendezvous,
    strategy,
    worker_group,
)
from distcore_horovod.elastic import MEET_AGAIN, Arrival, Changes, ElasticProcessGroup, Run
from distcore_horovod.launcher import IN_GROUP, Launched
from distcore_horovod.options import TrainerOptions
from distcore_horovod.process_group import share_memory_alone
from distcore_horovod.rendezvous import Place
from distcore_horovod.strategy import HorovodStrategy
from distcore_torch import packed, stay_on_loopback
from distcore_torch.training.meeting import INTERFACES

# ------------------------------------------------------------------ what is installed


@pytest.mark.parametrize(
    ("files", "torch", "said"),
    [
        (None, None, "Horovod is not installed"),
        ({"metadata.json": '{"pytorch": "2.13.0"}'}, None, r"\d was built without torch support"),
        (
            {"torch/mpi_lib_v2.cpython.so": "", "metadata.json": '{"pytorch": "2.13.0"}'},
            "2.13.0",
            None,
        ),
        (
            {"torch/mpi_lib_v2.cpython.so": "", "metadata.json": '{"pytorch": "2.12.0"}'},
            "2.12.0",
            r"built for torch 2\.12\.0, but torch 2\.13\.0 is here",
        ),
        ({"torch/mpi_lib_v2.cpython.so": ""}, "unknown", None),
        ({"torch/mpi_lib_v2.cpython.so": "", "metadata.json": "{}"}, "unknown", None),
    ],
)
def test_a_horovod_is_judged_by_its_files(files, torch, said, monkeypatch, tmp_path):
    for name, text in (files or {}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(installed, "folder", lambda: None if files is None else tmp_path)
    versions = {"horovod": "0.28.1", "torch": "2.13.0"}
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    found = installed.found()
    assert found == (None if files is None else installed.Found("0.28.1", torch))
    if said is None:
        assert installed.problem() is None
        installed.require()
    else:
        with pytest.raises(UserError, match=rf"{said}.* distcore-horovod build --install"):
            installed.require()


@pytest.mark.parametrize(
    ("answer", "mpirun", "rows"),
    [
        ({"gloo": True, "mpi": True}, "/bin/mpirun", [(True, "gloo, mpi"), (True, "/bin/mpirun")]),
        ({"gloo": True}, None, [(True, "gloo"), (True, "not installed; horovodrun works without")]),
        (
            {"nccl": True},
            "/bin/mpirun",
            [(True, "nccl"), (False, "/bin/mpirun, but it has no MPI")],
        ),
        ({}, None, [(False, "none"), (True, "not installed")]),
    ],
)
def test_what_the_doctor_says_of_a_horovod(answer, mpirun, rows, monkeypatch):
    monkeypatch.setattr(diagnose, "found", lambda: installed.Found("0.28.1", "2.13.0"))
    monkeypatch.setattr(diagnose, "problem", lambda: None)
    monkeypatch.setattr(diagnose.shutil, "which", lambda name: mpirun)
    answer = {**dict.fromkeys(["gloo", "mpi", "nccl", "cuda"], False), **answer}
    monkeypatch.setattr(diagnose, "ask", lambda: answer)
    first, *found = diagnose.checks()
    assert first == ("horovod", True, "0.28.1, built for torch 2.13.0")
    assert [what for what, _, _ in found] == ["collectives", "mpirun"]
    for (_, well, told), (expected, begins) in zip(found, rows, strict=True):
        assert well is expected
        assert told.startswith(begins)
        assert well or what_to_do(told)


def what_to_do(told):
    """Without `--mpi yes` a machine without mpicxx would have one without MPI built again."""
    return told == "none" or told.endswith("build --mpi yes --install")


def test_the_doctor_says_what_stands_against_a_horovod(monkeypatch):
    monkeypatch.setattr(diagnose, "found", lambda: None)
    monkeypatch.setattr(diagnose, "problem", lambda: "It is not installed.")
    assert diagnose.checks() == [("horovod", False, "It is not installed.")]

    def unusable():
        raise diagnose.Unusable("undefined symbol")

    monkeypatch.setattr(diagnose, "found", lambda: installed.Found("0.28.1", "2.13.0"))
    monkeypatch.setattr(diagnose, "problem", lambda: None)
    monkeypatch.setattr(diagnose, "ask", unusable)
    (_, well, _), (what, usable, told) = diagnose.checks()
    assert (well, what, usable) == (True, "horovod.torch", False)
    assert told.startswith("it cannot be used: undefined symbol. Build it anew")
    assert told.endswith("--force --install")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('{"size": 1, "sum": [1.0, 1.0, 1.0, 1.0], "gloo": true}', None),
        ('{"size": 2, "sum": [1.0, 1.0, 1.0, 1.0]}', "adds wrongly"),
        ('{"size": 1, "sum": [2.0, 1.0, 1.0, 1.0]}', "adds wrongly"),
    ],
)
def test_a_horovod_that_adds_wrongly_is_a_finding(said, told, monkeypatch):
    """Whatever launcher started this process: the child is of none."""
    asked = []

    def run(words, **how):
        asked.append(how["env"])
        return SimpleNamespace(returncode=0, stdout=f"a warning\nFOUND{said}\n", stderr="")

    monkeypatch.setattr(diagnose.subprocess, "run", run)
    for name in ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMIND"):
        monkeypatch.setenv(name, "1")
    if told is None:
        assert diagnose.ask() == {"gloo": True}
    else:
        with pytest.raises(diagnose.Unusable, match=told):
            diagnose.ask()
    (environment,) = asked
    ours = {each for each in environment if each.startswith(("HOROVOD_", "OMPI_", "PMI"))}
    assert ours == {"HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS", "PMIND"}


# ------------------------------------------------------------------ what builds one


@pytest.fixture
def tools(monkeypatch, tmp_path):
    """All that a build needs, in one folder; `tools(name, text)` writes another of them."""

    def script(name, text):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(build, "torch_version", lambda: "2.13.0")
    monkeypatch.setattr(build, "_installed", lambda name: True)
    (tmp_path / "Python.h").touch()
    for name in ("g++", "make"):
        script(name, ":")
    script("cmake", "echo cmake version 3.17.1-rc2")
    return script


def test_tools_are_found_and_mpi_only_where_it_may_be(tools, tmp_path):
    found = build.Tools(str(tmp_path / "g++"), str(tmp_path / "cmake"), None, "2.13.0")
    assert build.find_tools(None) == build.find_tools(False) == found
    with pytest.raises(UserError, match=r"Missing: mpicxx \([^;]*\)\.$"):
        build.find_tools(True)
    tools("mpicxx", "echo -lmpi")
    tools("mpirun", "echo 'mpirun 4.1.4'; echo more")
    assert build.find_tools(None).mpi == build.find_tools(True).mpi == "-lmpi mpirun 4.1.4"
    assert build.find_tools(False).mpi is None


@pytest.mark.parametrize("said", ["cmake version 3.16.9", "cmake version 2.40", "what?"])
def test_a_cmake_that_is_too_old_is_missing(tools, said):
    tools("cmake", f"echo '{said}'")
    with pytest.raises(UserError, match=r"Missing: cmake 3\.17 or newer \(pip install cmake\)\.$"):
        build.find_tools(None)
    tools("cmake", "echo cmake version 4.0.0")
    build.find_tools(None)


def test_a_compiler_that_is_asked_for_must_be_there(tools, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "clang++")
    with pytest.raises(UserError, match=r"Missing: a C\+\+ compiler"):
        build.find_tools(None)
    monkeypatch.setenv("CXX", "clang++ -O1")
    with pytest.raises(UserError, match=r"Missing: a C\+\+ compiler"):
        build.find_tools(None)
    tools("clang++", ":")
    assert build.find_tools(None).compiler == "clang++ -O1"


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("ok\na.cc:3: error: no such type.\nb.cc:1: error: more\n", "a.cc:3: error: no such type."),
        ("ok\n  CMake Error at 7\nend\n", "CMake Error at 7."),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES\nend\n",
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES.",
        ),
        ("begin\nKilled\n", "Killed."),
        ("", "no output."),
    ],
)
def test_why_a_build_failed_is_the_first_error_of_its_log(log, reason, tmp_path):
    (tmp_path / "log").write_text(log)
    assert build._reason(tmp_path / "log") == reason


def test_what_pip_said_of_a_wheel_is_told(monkeypatch, tmp_path):
    """Also while it is tried, before anything is installed."""
    pip = (sys.executable, "-c", "import sys; sys.exit('no matching torch')")
    monkeypatch.setattr(build, "PIP", pip)
    for call in (build.install, lambda wheel: build._try(wheel, tmp_path)):
        with pytest.raises(build.BuildError, match=r"a\.whl could not be .*: no matching t"):
            call(tmp_path / "a.whl")


# ------------------------------------------------------------------ how ranks meet in one


@pytest.fixture
def hvd(monkeypatch):
    """Horovod's module, of rank 1 of 2, and what was called in it."""
    called = []
    module = ModuleType("horovod.torch")
    module.init = lambda: called.append({**os.environ})
    module.shutdown = lambda: called.append("shutdown")
    module.allgather = lambda *_, **__: None
    module.size, module.rank = lambda: 2, lambda: 1
    parent = ModuleType("horovod")
    parent.torch = module
    monkeypatch.setitem(sys.modules, "horovod", parent)
    monkeypatch.setitem(sys.modules, "horovod.torch", module)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    return called


def meet(monkeypatch, *places, **options):
    store = HashStore()
    store.set("server", f'["{places[0].address}", 77]')
    monkeypatch.setattr(rendezvous.meeting, "fresh_store", lambda rank: store)
    monkeypatch.setattr(rendezvous, "_exchanged", lambda *_: list(places))
    rendezvous.join(Rank(index=1, world=2), **options)


def test_ranks_of_several_machines_meet_only_where_they_may(hvd, monkeypatch):
    """Whoever reaches Horovod's rendezvous could join."""
    places = Place("a", "10.0.0.1"), Place("b", "127.0.0.1")
    with pytest.raises(UserError, match=r"on 2 machines.*allow_network: true"):
        meet(monkeypatch, *places)
    assert hvd == []
    loopback = next(
        name
        for name, found in psutil.net_if_addrs().items()
        if any(each.address == "127.0.0.1" for each in found)
    )
    meet(monkeypatch, *places, allow_network=True, fusion_threshold_mb=3)
    (settings,) = hvd
    assert settings["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "10.0.0.1"
    assert settings["HOROVOD_GLOO_RENDEZVOUS_PORT"] == "77"
    assert settings["HOROVOD_GLOO_IFACE"] == loopback
    assert settings["HOROVOD_FUSION_THRESHOLD"] == str(3 << 20)
    with pytest.raises(UserError, match=r"No network interface here has the address 192\.0\.2\.7"):
        meet(monkeypatch, places[0], Place("b", "192.0.2.7"), allow_network=True)


@pytest.mark.usefixtures("hvd")
@pytest.mark.parametrize(("rank", "size"), [(0, 2), (1, 3)])
def test_ranks_that_met_otherwise_than_they_were_started_stop(rank, size, monkeypatch):
    """They would read the rows of others."""
    module = sys.modules["horovod.torch"]
    module.rank, module.size = lambda: rank, lambda: size
    with pytest.raises(TrainingError, match=f"rank {rank} of {size}, but this is rank 1 of 2"):
        meet(monkeypatch, *[Place("a", "127.0.0.1")] * 2)


def test_nothing_of_a_group_is_left_for_what_it_starts_later(hvd, monkeypatch):
    place = Place("a", "127.0.0.1")
    before = {**os.environ}
    meet(monkeypatch, place, place)
    assert hvd[0]["HOROVOD_RANK"] == hvd[0][IN_GROUP] == "1"
    assert "HOROVOD_FUSION_THRESHOLD" not in hvd[0]
    rendezvous.leave()
    assert hvd[1] == "shutdown"
    assert {**os.environ} == before
    os.environ["HOROVOD_CYCLE_TIME"] = "1"  # the user's, under a launcher
    rendezvous.leave()
    assert os.environ["HOROVOD_CYCLE_TIME"] == "1"


# ------------------------------------------------------------------ what travels


def strategy_of(world, **options):
    made = HorovodStrategy(TrainerOptions.model_validate(options))
    made.rank, made.device = Rank(index=1, world=world), torch.device("cpu")
    return made


@pytest.fixture
def sent(hvd):
    """(name, numbers) of all that is added up, of as many ranks as there are, which have the
    same."""
    found = []

    def allreduce_(values, op, name):
        assert op == "Sum"
        found.append((name, values.clone()))
        values.mul_(sys.modules["horovod.torch"].size())

    module = sys.modules["horovod.torch"]
    module.Sum, module.Adasum, module.allreduce_ = "Sum", "Adasum", allreduce_
    return found


THIRD = 1 / 3
"""No 16-bit float has it."""


@pytest.mark.parametrize(
    ("options", "gradients", "dtype"),
    [
        ({}, 2.0, torch.float32),
        ({"op": "sum"}, 4.0, torch.float32),
        ({"gradient_predivide_factor": 4.0}, 2.0, torch.float32),
        ({"compression": "fp16"}, 2.0, torch.float16),
    ],
    ids=str,
)
@pytest.mark.parametrize("behind", [0, 1, 3])
def test_gradients_are_scaled_and_what_lies_behind_them_is_not(
    sent, options, gradients, dtype, behind
):
    """Behind them: the stop flag, and running statistics."""
    strategy = strategy_of(2, **options)
    strategy._sizes = {torch.float32: [2]}
    exchange = strategy.exchange(2 + behind, torch.float32)
    exchange.slot()[:2] = torch.tensor([0.25, THIRD])
    other = 1.0 if behind == 1 else THIRD
    exchange.slot()[2:] = other
    found = exchange.sum().tolist()
    assert found[:2] == pytest.approx([0.25 * gradients, THIRD * gradients], rel=1e-3)
    assert found[2:] == pytest.approx([2 * other] * behind)
    assert sent[0][1].dtype == dtype
    assert len({name for name, _ in sent}) == len(sent)


def test_digests_and_what_one_rank_has_travel_as_they_are(sent):
    exchange = strategy_of(2, op="sum", compression="fp16").exchange(1, torch.float32)
    exchange.slot()[:] = THIRD
    assert exchange.sum().tolist() == pytest.approx([2 * THIRD])
    ((_, numbers),) = sent
    assert numbers.dtype == torch.float32
    alone = strategy_of(1, compression="fp16")
    alone._sizes = {torch.float32: [1]}
    exchange = alone.exchange(1, torch.float32)
    exchange.slot()[:] = THIRD
    assert exchange.sum().tolist() == pytest.approx([THIRD])
    assert len(sent) == 1


def test_adasum_is_of_each_parameter_s_own_mean(sent):
    """Of the ranks' shares of the mean, it would not be that of Horovod's users."""
    module, given = sys.modules["horovod.torch"], []
    module.allreduce_async_ = lambda part, op, name: given.append((part.tolist(), op)) or name
    module.synchronize = lambda handle: None
    strategy = strategy_of(4, op="adasum")
    strategy._sizes = {torch.float32: [1, 2]}
    exchange = strategy.exchange(4, torch.float32)
    exchange.slot()[:] = torch.tensor([1.0, 2.0, 3.0, 0.5])
    assert exchange.sum().tolist() == [4.0, 8.0, 12.0, 1.0]
    assert given == [([4.0], "Adasum"), ([8.0, 12.0], "Adasum")]
    assert [numbers.tolist() for _, numbers in sent] == [[0.5]]


@pytest.mark.parametrize(
    ("mpi", "world", "said"),
    [(True, 6, "8, … ranks, but there are 6"), (False, 2, "needs MPI"), (True, 4, None)],
)
def test_adasum_needs_mpi_and_a_power_of_two(hvd, monkeypatch, mpi, world, said):
    monkeypatch.setattr(installed, "require", lambda: None)
    module = sys.modules["horovod.torch"]
    module.is_initialized, module.mpi_enabled = lambda: True, lambda: mpi
    module.size = lambda: world
    strategy = strategy_of(world, op="adasum", use_gpu=False)
    with pytest.raises(UserError, match=said) if said else nullcontext():
        strategy.setup(Rank(index=1, world=world))
    with pytest.raises(TrainingError, match=f"joined {world} ranks, but the worker group has 3"):
        strategy.setup(Rank(index=1, world=3))
    assert hvd == []  # the launcher's processes had joined


def test_values_of_every_rank_are_gathered(hvd):
    module, value = sys.modules["horovod.torch"], {"rows": [1, 2], "name": "a"}
    assert strategy_of(1).gather(value) == [value]
    other = packed("of rank 0")
    module.allgather = lambda mine, name: torch.cat(
        [torch.tensor([other.numel()]) if mine.dtype == torch.int64 else other, mine]
    )
    assert strategy_of(2).gather(value) == ["of rank 0", value]
    assert not hvd


@pytest.mark.usefixtures("hvd")
def test_a_checkpoint_that_is_more_than_horovod_carries_comes_in_pieces(monkeypatch):
    """Horovod counts what an allgather gives each rank in 32 bits, and wrote beyond its memory."""
    monkeypatch.setattr(strategy, "AT_ONCE_BYTES", 1000)
    module, sent = sys.modules["horovod.torch"], []
    theirs = packed({"weights": torch.arange(600)})
    pieces = list(theirs.split(1000))

    def allgather(mine, name):
        assert name == "distcore.sizes"
        return torch.tensor([theirs.numel(), mine.item()])

    def broadcast_(piece, root_rank, name):
        sent.append((root_rank, piece.numel()))
        if root_rank == 0:
            piece.copy_(pieces.pop(0))

    module.allgather, module.broadcast_ = allgather, broadcast_
    first, mine = strategy_of(2).gather(None)
    assert first["weights"].equal(torch.arange(600))
    assert mine is None
    assert [rank for rank, _ in sent] == [0] * 5 + [1]
    assert all(size <= 1000 for _, size in sent)


def test_exact_training_is_refused_with_what_the_number_of_workers_changes():
    strategy = strategy_of(2, op="sum", compression="fp16")
    with pytest.raises(UserError, match=r"without backend\.trainer\.op and compression"):
        strategy.tree_exchange(4, torch.float32, 2)


# ------------------------------------------------------------------ a rank's surroundings


@pytest.mark.parametrize(
    ("hosts", "ranks", "here"),
    [
        ("aaaa", 2, [2, 2]),
        ("abab", 2, [1, 1]),
        ("aab", 3, [2, 2, 1]),
    ],
)
def test_ranks_of_the_launcher_that_are_not_in_the_group_do_not_count(
    monkeypatch, hosts, ranks, here
):
    """Two of four under mpirun, on one machine, took it for a machine of a larger group's, and gloo
    listened on the network."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for name in INTERFACES:
        os.environ.pop(name, None)
    monkeypatch.setattr(Path, "exists", lambda path: str(path) == "/sys/class/net/lo")
    monkeypatch.setattr(worker_group, "processors", lambda: 2)
    group = WorkerGroup(function=print, ranks=ranks)
    found = []
    for index in range(ranks):
        rank = Rank(index=index, world=ranks, local_rank=0)
        launched = SimpleNamespace(hosts=[*hosts], local_size=len(hosts))
        with worker_group.surroundings(rank, launched, group):
            found.append((int(os.environ["LOCAL_WORLD_SIZE"]), torch.get_num_threads()))
            stay_on_loopback(rank)
            assert ("GLOO_SOCKET_IFNAME" in os.environ) == (len(set(hosts[:ranks])) == 1)
        assert "GLOO_SOCKET_IFNAME" not in os.environ, "the next group may be on more machines"
    assert found == [(each, 2 // each) for each in here]


@pytest.mark.parametrize(
    ("named", "default", "found"),
    [
        (["127.0.1.1"], "10.0.0.7", "10.0.0.7"),  # as Debian has it
        (["127.0.1.1", "10.0.0.8"], "10.0.0.7", "10.0.0.8"),
        (None, "10.0.0.7", "10.0.0.7"),
        (["127.0.1.1"], None, "10.0.0.9"),
    ],
)
def test_the_leader_listens_where_other_machines_reach_it(monkeypatch, named, default, found):
    """Where its name leads to may be the loopback, or nowhere."""

    def of_name(name):
        if named is None:
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return name, [], named

    interfaces = {
        name: [SimpleNamespace(family=socket.AF_INET, address=address)]
        for name, address in (
            *(("lo", "127.0.0.1"), ("docker0", "172.17.0.1")),
            *(("eth0", "10.0.0.9"), ("eth0:1", "10.0.0.10")),
        )
    }
    stats = {name: SimpleNamespace(isup=name != "docker0") for name in ("lo", "docker0", "eth0")}
    monkeypatch.setattr(socket, "gethostbyname_ex", of_name)
    monkeypatch.setattr(addresses, "towards", lambda host: default)
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: interfaces)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: stats)
    assert addresses.shared_address(["a-1", "b-2"]) == found
    assert addresses.shared_address(["a-1", "a-1"]) == "127.0.0.1"
    group = SimpleNamespace(hosts=["a-1", "b-2"])
    monkeypatch.setattr(worker_group, "free_port", len)
    assert worker_group.meeting_point(group)[0] == found


@pytest.mark.parametrize(
    ("master", "leads_to", "found"),
    [
        ("a", "127.0.0.1", "10.0.0.7"),  # Debian's rank 0, whose own name it is
        ("a", None, "10.0.0.7"),
        ("a", "10.0.0.8", "10.0.0.8"),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),  # the ranks are on one machine
        ("localhost", "127.0.0.1", "127.0.0.1"),
    ],
)
def test_a_rank_s_place_is_one_that_other_machines_reach(monkeypatch, master, leads_to, found):
    monkeypatch.setenv("MASTER_ADDR", master)
    monkeypatch.setattr(rendezvous, "towards", lambda host: leads_to)
    monkeypatch.setattr(rendezvous, "reached_address", lambda: "10.0.0.7")
    assert rendezvous._address() == found


# ------------------------------------------------------------------ orders


class Ranks:
    """Horovod of two ranks, which are threads here."""

    def __init__(self):
        self.barrier, self.told = threading.Barrier(2, timeout=60), [None, None]

    def exchanged(self, rank, value):
        self.told[rank] = value
        self.barrier.wait()
        found = list(self.told)
        self.barrier.wait()
        return found

    def of(self, rank):
        def alltoall(values, splits, name):
            found = self.exchanged(rank, (values, splits.tolist()))
            mine = [each.split(sizes)[rank] for each, sizes in found]
            return torch.cat(mine), torch.tensor([each.numel() for each in mine])

        def broadcast_object(value, root_rank, name):
            return self.exchanged(rank, value)[root_rank]

        return SimpleNamespace(
            alltoall=alltoall, broadcast_object=broadcast_object, shutdown=lambda: None
        )


def group_of(kind, rank, hvd):
    made = kind.__new__(kind)
    made.launched, made.hvd, made.over = Launched(rank, 2, rank, 2, "horovodrun"), hvd, False
    made.introduce([("a-1", 11), ("b-2", 12)])
    return made


@pytest.fixture
def lost(hvd, monkeypatch):
    """What Horovod raises where a rank is lost."""
    common, exceptions = ModuleType("horovod.common"), ModuleType("horovod.common.exceptions")
    exceptions.HorovodInternalError = type("HorovodInternalError", (RuntimeError,), {})
    monkeypatch.setitem(sys.modules, common.__name__, common)
    monkeypatch.setitem(sys.modules, exceptions.__name__, exceptions)
    monkeypatch.setattr(process_group, "atexit", SimpleNamespace(register=id, unregister=id))
    for kind in (process_group.ProcessGroup, ElasticProcessGroup):
        monkeypatch.setattr(
            kind, "open_error_channel", lambda self: SimpleNamespace(reason=lambda: "b is gone.")
        )
    assert not hvd
    level = process_group.log.level
    yield exceptions.HorovodInternalError
    process_group.log.setLevel(level)  # followers are quiet


def part(group, value):
    if value is None and group.rank:
        raise KeyError(value)
    return threading.Lock() if value == "lock" and group.rank else (group.rank, value)


@pytest.mark.usefixtures("lost")
def test_an_order_is_carried_out_by_every_rank_until_the_leader_lets_them_go():
    ranks, codes = Ranks(), []

    def follow():
        with pytest.raises(SystemExit) as caught:
            group_of(process_group.ProcessGroup, 1, ranks.of(1)).follow()
        codes.append(caught.value.code)

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    leader = group_of(process_group.ProcessGroup, 0, ranks.of(0))
    assert leader.everywhere(part, "x") == [(0, "x"), (1, "x")]
    with pytest.raises(KeyError) as caught:
        leader.everywhere(part, None)
    assert "In rank 1:" in "".join(caught.value.__notes__)
    with pytest.raises(TypeError, match="rank 1's result cannot travel"):
        leader.everywhere(part, "lock")
    assert leader.everywhere(part, 3) == [(0, 3), (1, 3)]  # an error ends no group
    leader.end()
    follower.join(60)
    assert codes == [0]
    leader.end()  # which tells nobody anything
    with pytest.raises(TrainingError, match="other processes have ended"):
        leader.everywhere(part, "x")


@pytest.mark.usefixtures("lost")
@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 200, 950])
def test_an_order_of_more_than_horovod_carries_goes_in_pieces(monkeypatch, size):
    """A frame of 2 GiB, say: torch's words were of a type that overflows."""
    monkeypatch.setattr(process_group, "AT_ONCE_BYTES", 100)
    order, sent = bytes(range(250)) * 4, []
    group = group_of(
        process_group.ProcessGroup,
        0,
        SimpleNamespace(broadcast_object=lambda piece, **_: sent.append(piece)),
    )
    group._tell(order[:size])
    group._tell(b"next")
    assert max(map(len, sent)) <= 100
    group.hvd = SimpleNamespace(broadcast_object=lambda piece, **_: sent.pop(0))
    assert group._told() == order[:size]
    assert group._told() == b"next"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("sizes", [{0: 2**31}, {0: 2**30, 1: 2**30}])
def test_more_than_horovod_carries_is_told_in_every_rank(rank, sizes):
    """Sizes, and MPI's places, are numbers of 32 bits: one rank failed, and the others waited."""
    with pytest.raises(TypeError, match=f"rank {rank}'s result cannot travel: it has .* bytes"):
        cloudpickle.loads(process_group._dumped("more than this", rank, 9)).raised()
    plans = [ShardPlan(index=0, start=0, stop=5), ShardPlan(index=1, start=5, stop=9)]
    hvd = SimpleNamespace(allgather_object=lambda mine, name: [{}, {}, sizes])
    group = SimpleNamespace(hvd=hvd, rank=rank, size=3)
    with pytest.raises(CacheError, match="A rank has more than 2147483647 bytes of rows"):
        processor._exchanged(group, plans, {}, [0, 5, 9])


def test_the_leader_says_which_rank_was_lost_and_gives_no_order_any_more(lost, monkeypatch):
    def broadcast_object(*_, **__):
        raise lost("a connection was closed")

    handled, said = [], []
    monkeypatch.setattr(process_group.signal, "signal", lambda *each: handled.append(each))
    monkeypatch.setattr(process_group, "say_afterwards", said.append)
    leader = group_of(
        process_group.ProcessGroup, 0, SimpleNamespace(broadcast_object=broadcast_object)
    )
    leader.advice = lambda: "Go on with it."
    with pytest.raises(TrainingError, match=r"The run stopped: b is gone\."):
        leader.everywhere(part, "x")
    assert said == ["distcore: The run stopped: b is gone. Go on with it."]
    assert handled == [(signal.SIGTERM, signal.SIG_IGN)]
    with pytest.raises(TrainingError, match="other processes have ended"):
        leader.everywhere(part, "x")


@pytest.mark.usefixtures("lost")
@pytest.mark.parametrize("at", ["order", "part"])
def test_a_signal_to_the_leader_alone_lets_no_other_rank_wait_for_its_part(monkeypatch, at):
    """Outside of training: nobody asks the others there whether to stop."""
    done = []

    def broadcast_object(*_, **__):
        done.append("told")
        if at == "order" and len(done) == 1:
            raise Stopped("", signal.SIGTERM)

    def stopped(group):
        raise Stopped("", signal.SIGTERM)

    monkeypatch.setattr(process_group.signal, "signal", lambda *each: None)
    hvd = SimpleNamespace(
        broadcast_object=broadcast_object, shutdown=lambda: done.append("shutdown")
    )
    leader = group_of(process_group.ProcessGroup, 0, hvd)
    leader.error_channel = SimpleNamespace(stops=lambda: done.append("stops"))
    with pytest.raises(Stopped):
        leader.everywhere(stopped)
    leader.end()
    assert done == ["told", "stops", "shutdown"]


def test_a_rank_that_is_lost_is_named_also_where_the_leader_is_no_main_thread(lost, monkeypatch):
    """Python's handlers are the main thread's: to set one anywhere else hid what was lost."""

    def broadcast_object(*_, **__):
        raise lost("a connection was closed")

    monkeypatch.setattr(process_group, "say_afterwards", lambda said: None)
    leader = group_of(
        process_group.ProcessGroup, 0, SimpleNamespace(broadcast_object=broadcast_object)
    )
    leader.advice = str
    answer = in_thread(lambda: leader.everywhere(part, "x"))
    assert str(answer.exception(60)) == "The run stopped: b is gone."


@pytest.mark.usefixtures("lost")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_sys_exit_of_a_users_code_is_told_as_what_ended_the_run(monkeypatch, rank):
    def leaves(rank):
        sys.exit("bad flag")

    left = []
    monkeypatch.setattr(process_group.signal, "signal", lambda *each: None)
    for name in ("says_why", "surroundings"):
        monkeypatch.setattr(worker_group, name, lambda *_: nullcontext())
    monkeypatch.setattr(worker_group, "say_afterwards", lambda said: None)
    group = group_of(process_group.ProcessGroup, rank, SimpleNamespace(shutdown=lambda: None))
    group.error_channel = SimpleNamespace(leave=left.append, reason=lambda: "b is gone.")
    with pytest.raises(TrainingError, match=r"The run stopped: b is gone\."):
        worker_group.run_part(group, WorkerGroup(function=leaves, ranks=2), ("", 0))
    assert left == ["SystemExit: bad flag"]


@pytest.mark.usefixtures("hvd")
@pytest.mark.parametrize(("speaks", "said"), [(True, "rank 0 is gone. Go on."), (False, None)])
def test_a_follower_says_what_was_lost_only_if_the_leader_cannot(
    lost, monkeypatch, capsys, speaks, said
):
    def broadcast_object(*_, **__):
        raise lost("a connection was closed")

    monkeypatch.setattr(process_group.signal, "signal", lambda *each: None)
    monkeypatch.setattr(process_group, "say_afterwards", lambda said: None)
    monkeypatch.setattr(process_group, "leave_process", sys.exit)
    follower = group_of(
        process_group.ProcessGroup, 1, SimpleNamespace(broadcast_object=broadcast_object)
    )
    follower.advice = lambda: "Go on."
    follower.error_channel = SimpleNamespace(
        speaks_for_the_leader=lambda: speaks, gone=lambda: "rank 0 is gone."
    )
    with pytest.raises(SystemExit) as caught:
        follower.follow()
    assert caught.value.code == 1
    assert capsys.readouterr().err == (f"distcore: The run stopped: {said}\n" if said else "")


@pytest.mark.usefixtures("lost")
def test_an_order_that_a_rank_cannot_read_is_an_answer():
    follower, answers = group_of(process_group.ProcessGroup, 1, None), []
    follower._gather = answers.append
    follower._obey(b"nonsense")
    assert [(each.rank, type(each.error).__name__) for each in answers] == [(1, "UnpicklingError")]


@pytest.mark.parametrize(
    ("given", "waits"), [(None, "300"), ("30", "300"), ("60", "60")], ids=["", "horovodrun's", "60"]
)
@pytest.mark.parametrize("by", ["horovodrun", "mpirun"])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("machines", [1, 2])
def test_ranks_meet_with_patience_and_who_ends_the_launcher_is_known(
    lost, monkeypatch, given, waits, by, rank, machines
):
    done, module = [], sys.modules["horovod.torch"]
    for name in ("require", "find_launcher"):
        monkeypatch.setattr(process_group, name, lambda: None)
    monkeypatch.setattr(process_group, "end_with_shell", lambda: done.append("shell"))
    monkeypatch.setattr(process_group.atexit, "register", lambda each: done.append(each.__name__))
    monkeypatch.setattr(process_group, "share_memory_alone", lambda _: done.append("alone"))
    module.mpi_built = lambda: True
    module.rank, module.size = lambda: rank, lambda: 2
    module.allgather_object = lambda mine, name: [("a-1", 11), mine][:: 1 if rank else -1]
    monkeypatch.delenv("HOROVOD_GLOO_TIMEOUT_SECONDS", raising=False)
    if given:
        monkeypatch.setenv("HOROVOD_GLOO_TIMEOUT_SECONDS", given)
    launched = Launched(rank, 2, rank, 2 // machines, by)
    made = process_group.ProcessGroup(launched)
    assert os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] == waits
    assert done == [
        *(["alone"] if machines == 1 else []),
        *(["shell"] if by == "mpirun" else [] if rank else ["_end_the_launcher_too"]),
        *([] if rank else ["end"]),
    ]
    assert (made.rank, made.size, made.local_size) == (rank, 2, 1)
    assert made.processes[rank] == os.getpid()
    module.size = lambda: 1
    with pytest.raises(UserError, match=f"Horovod says rank {rank} of 1"):
        process_group.ProcessGroup(launched)
    if by == "mpirun":
        module.mpi_built = lambda: False
        with pytest.raises(UserError, match="has no MPI"):
            process_group.ProcessGroup(launched)


@pytest.fixture
def elastic(lost):
    """Horovod's words for rank 0 of two that come and go, and what each that arrives tells."""
    arrivals = []

    def allgather_object(mine, name):
        arrivals[0] = mine
        return arrivals

    hvd = SimpleNamespace(
        init=lambda: None,
        shutdown=lambda: None,
        rank=lambda: 0,
        size=lambda: len(arrivals),
        local_rank=lambda: 0,
        local_size=lambda: 1,
        allgather_object=allgather_object,
    )
    made = group_of(ElasticProcessGroup, 0, hvd)
    made.runs, made.inherited, made._failure = (), [], None
    made.changes = Changes()
    made.arrivals = arrivals
    return made


def arrived(host, process, runs=(), failure=None):
    return Arrival(host, process, runs, failure)


def test_those_who_meet_again_know_all_runs_and_people_are_told_who_is_gone(elastic, caplog):
    run, other = Run("a", 2), Run("b", 2)
    elastic.begins(run)
    elastic.begins(run)
    assert elastic.runs == (run,)
    elastic.introduce([(rendezvous.meeting.machine(), os.getpid()), ("b-2", 12), ("c-3", 13)])
    elastic.changes.on_hosts_updated(1, None)
    elastic.arrivals[:] = [None, arrived("b-2", 12, (run, other)), arrived("d-4", 14)]
    elastic.regroup()
    assert elastic.runs == (run, other)
    assert not elastic.changes.told
    assert (elastic.hosts[1:], elastic.processes[1:]) == (["b-2", "d-4"], [12, 14])
    (said,) = caplog.messages
    assert said == (
        "rank 2 (process 13 on c) is gone; rank 2 (process 14 on d) has joined. "
        "Going on with 3 ranks."
    )
    caplog.clear()
    elastic.arrivals[:] = [None]
    elastic.regroup()
    (said,) = caplog.messages
    assert said.endswith("rank 2 (process 14 on d) are gone. Going on with 1 rank.")
    elastic.regroup()
    assert len(caplog.messages) == 1  # nothing new


def test_who_has_no_place_any_more_ends_and_who_gets_the_first_leads(elastic, lost, monkeypatch):
    """With the runs that the lost leader had begun."""
    monkeypatch.setattr("distcore_horovod.elastic.leave_process", sys.exit)
    run, broadcasts = Run("a", 2), [MEET_AGAIN]
    elastic.hvd.broadcast_object = lambda *_, **__: broadcasts.pop()
    elastic.arrivals[:] = [None, arrived("b-2", 12, (run,))]
    elastic.launched = replace(elastic.launched, rank=1)
    level = process_group.log.level
    elastic.follow()
    assert (elastic.rank, elastic.inherited, broadcasts) == (0, [run], [])
    assert process_group.log.level == level
    elastic.hvd.rank = lambda: 1
    elastic.arrivals[:] = [None, arrived("b-2", 12)]
    with pytest.raises(SystemExit) as caught:  # what it led is another's
        elastic.regroup()
    assert caught.value.code == 1

    def init():
        raise ValueError("no slot")

    elastic.hvd.init = init
    with pytest.raises(SystemExit) as caught:
        elastic.regroup()
    assert caught.value.code == 1


def test_an_order_is_given_again_after_a_loss_and_ends_with_what_a_rank_failed_with(
    elastic, lost, monkeypatch
):
    meetings, left = [lost("closed"), lost("one more"), None], []

    def init():
        if (error := meetings.pop(0)) is not None:
            raise error

    def broadcast_object(*_, **__):
        if meetings:
            raise lost("closed")

    monkeypatch.setattr(process_group, "gathered", lambda hvd, value, rank, size: [value])
    elastic.hvd.init, elastic.hvd.broadcast_object = init, broadcast_object
    elastic.hvd.shutdown = lambda: left.append(len(meetings))
    elastic.arrivals[:] = [None]
    assert elastic.everywhere(part, "x") == [(0, "x")]
    assert left == [3, 2, 1]  # before each meeting
    meetings[:] = [None]
    told = group_of(ElasticProcessGroup, 1, None)
    assert isinstance(told.failed_here(KeyError("k")), process_group.Broken)
    elastic.arrivals[:] = [None, arrived("b-2", 12, failure=told._failure)]
    with pytest.raises(TrainingError, match=r"rank 1 \(process 12 on b\) ended: KeyError"):
        elastic.everywhere(part, "x")
    elastic.arrivals[:] = [None]
    meetings[:], left[:] = [None], []
    elastic.end()  # also if one is lost meanwhile
    assert elastic.over
    assert left == [1, 0]


@pytest.mark.parametrize(
    ("given", "btl"),
    [
        ({}, "^ofi,openib,tcp,uct,usnic"),
        ({"OMPI_MCA_btl": "^vader,tcp"}, "^ofi,openib,tcp,uct,usnic,vader"),
        ({"OMPI_MCA_btl": "self,tcp"}, "self,tcp"),
    ],
)
def test_ranks_of_one_machine_listen_nowhere_unless_the_user_says_where(given, btl):
    share_memory_alone(given)
    assert given == {"OMPI_MCA_btl": btl, "OMPI_MCA_pml": "^ucx,cm"}
    given["OMPI_MCA_pml"] = "ob1"
    share_memory_alone(given)
    assert given["OMPI_MCA_pml"] == "ob1"
