"""What is found of a Horovod and of the tools that build one, and how ranks meet in it, where none
is installed: packages and tools here are files that a test writes."""

import importlib.metadata
import os
import sys
from types import ModuleType, SimpleNamespace

import psutil
import pytest
from torch.distributed import HashStore

from distcore_core.contracts import Rank
from distcore_core.errors import TrainingError, UserError
from distcore_horovod import build, diagnose, installed, rendezvous
from distcore_horovod.launcher import IN_GROUP
from distcore_horovod.process_group import share_memory_alone
from distcore_horovod.rendezvous import Place

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
