"""What needs no second process: the launcher's environment, places of ranks, the wire, what a
build needs, Gloo under MPI."""

import errno
import signal
import socket
import sys
from types import SimpleNamespace

import pytest

import distcore
from distcore_core.contracts import TRAINER, PluginRef, Rank, TrainJob, WorkerGroup
from distcore_core.errors import Stopped, UserError
from distcore_core.progress import Progress
from distcore_core.registry.manager import Plugins
from distcore_data.os_errors import in_words
from distcore_horovod import build, diagnose, elastic_backend, installed
from distcore_horovod.backend import Joined
from distcore_horovod.elastic import Changes, Run
from distcore_horovod.elastic_backend import Elastic, Watched
from distcore_horovod.failure import failed
from distcore_horovod.launcher import IN_GROUP, Launched, launched
from distcore_horovod.options import TrainerOptions
from distcore_horovod.process_group import check_size, refuse_without_mpi
from distcore_horovod.rendezvous import slot
from distcore_horovod.strategy import Wire
from distcore_testing import data

GLOO = {
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
    "HOROVOD_RANK": "3",
    "HOROVOD_SIZE": "4",
    "HOROVOD_LOCAL_RANK": "1",
}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"HOROVOD_TIMELINE": "x"}, None),
        ({**GLOO, "HOROVOD_LOCAL_SIZE": "2"}, Launched(3, 4, 1, 2, "horovodrun")),
        (
            {**GLOO, "HOROVOD_LOCAL_SIZE": "2", "HOROVOD_ELASTIC": "1"},
            Launched(3, 4, 1, 2, "horovodrun", True),
        ),
        ({**GLOO, IN_GROUP: "1"}, None),
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
            },
            Launched(1, 2, 0, 1, "mpirun"),
        ),
        (
            {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"},
            Launched(1, 2, 1, 2, "mpirun"),
        ),
    ],
)
def test_a_launcher_is_known_by_its_environment(environment, expected):
    assert launched(environment) == expected


def test_a_rank_knows_its_place_on_uneven_machines():
    """As Horovod counts: among the ranks of its machine, and among the machines that have a rank
    of that number."""
    hosts = ["a", "b", "a", "a"]
    found = [slot(Rank(index=rank, world=4), hosts) for rank in range(4)]
    names = ("LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    assert [tuple(int(each[f"HOROVOD_{name}"]) for name in names) for each in found] == [
        (0, 3, 0, 2),
        (0, 1, 1, 2),
        (1, 3, 0, 1),
        (2, 3, 0, 1),
    ]


@pytest.mark.parametrize(
    ("options", "wire"),
    [
        ({}, Wire()),
        ({"op": "sum"}, Wire(result=4.0)),
        ({"compression": "fp16"}, Wire(4.0, 0.25, True)),
        ({"gradient_predivide_factor": 2.0}, Wire(2.0, 0.5)),
        ({"gradient_predivide_factor": 4.0, "compression": "fp16"}, Wire(1.0, 1.0, True)),
    ],
)
def test_how_gradients_travel(options, wire):
    """Of 4 ranks. Without an option nothing is scaled, so the bits are a plain sum's."""
    found = Wire.of(TrainerOptions.model_validate(options), 4)
    assert found == wire
    assert found.plain == (not found.half and found.before == 1.0)


def test_what_changes_the_update_is_bound_where_a_run_goes_on():
    """With `op: sum` steps are larger from there on; by default they are any other trainer's."""
    wheres = {"num_workers": 4, "logdir": "logs", "op": "average"}
    assert Plugins().make(TRAINER, "horovod", wheres).bound == {}
    assert Plugins().make(TRAINER, "data_parallel", {"num_workers": 4}).bound == {}
    given = {"op": "sum", "compression": "fp16"}
    assert Plugins().make(TRAINER, "horovod", {**wheres, **given}).bound == given


@pytest.mark.parametrize(
    ("given", "rate"), [({}, 0.004), ({"learning_rate_scaling": "constant"}, 0.001)]
)
def test_the_learning_rate_grows_with_the_ranks(given, rate, tmp_path):
    """As Horovod's users expect, unless the config says otherwise; so does a launcher's number
    of ranks."""
    config = data.config(str(tmp_path), trainer={"learning_rate": 0.001, **given})
    config["backend"]["trainer"] = {"type": "horovod", "num_workers": 4, "use_gpu": False}
    training = distcore.plan(config, dataset=data.table())["training"]
    assert (training["workers"], training["learning_rate"]) == (4, pytest.approx(rate))
    trainer = Plugins().make(TRAINER, "horovod", {"num_workers": 4})
    assert (
        trainer.workers(Joined(SimpleNamespace(launched=Launched(0, 2, 0, 2, "horovodrun")))) == 2
    )
    assert (
        trainer.workers(Joined(SimpleNamespace(launched=Launched(0, 2, 0, 2, "horovodrun", True))))
        == 4
    )


@pytest.fixture
def elastic_launcher(monkeypatch):
    for name, value in {**GLOO, "HOROVOD_ELASTIC": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.cluster  # Horovod itself is asked
@pytest.mark.usefixtures("elastic_launcher")
@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("processors", {}, "Leave out backend.processor"),
        ("trainers", {"op": "sum"}, "op sum does not go with horovodrun's elastic mode"),
    ],
)
def test_what_an_elastic_launcher_cannot_do_is_refused_before_any_work(kind, options, said):
    with pytest.raises(UserError, match=said):
        Plugins().check(kind, "horovod", options)
    Plugins().check("trainers", "horovod", {})


@pytest.mark.parametrize(
    ("trainer", "kept", "said"),
    [
        ("ddp", True, "ddp cannot lose a rank"),
        ("horovod", False, "Leave out --skip_save_progress"),
        ("horovod", True, None),
    ],
)
def test_a_run_that_could_not_go_on_is_refused(trainer, kept, said, tmp_path):
    """And one that can is planned for the ranks that it was begun with, however many there are
    now."""
    process_group = SimpleNamespace(runs=(Run(tmp_path, 3),))
    job = TrainJob(
        config={},
        cache=None,
        loader=None,
        trainer=PluginRef(kind="trainers", name=trainer, options={}),
        directory=tmp_path,
        seed=7,
        opener="",
        save_checkpoints=kept,
    )
    group = WorkerGroup(function=print, arguments=(job, None), ranks=2)
    if said is None:
        assert Elastic(process_group)._planned(group).arguments[0].planned_workers == 3
    else:
        with pytest.raises(UserError, match=said):
            Elastic(process_group)._planned(group)


@pytest.mark.parametrize("number", [0, signal.SIGHUP])
def test_elastic_training_ends_with_the_signal_that_stopped_it(monkeypatch, number):
    """SIGHUP and SIGQUIT were told as ctrl-C, with its exit code. 0: another rank heard of it."""
    monkeypatch.setattr(elastic_backend, "signal_received", lambda: number)
    process_group = SimpleNamespace(
        changes=Changes(), everywhere=lambda function, group: [None, elastic_backend.STOPPED]
    )
    with pytest.raises(Stopped) as caught:
        Elastic(process_group).run_group(WorkerGroup(function=print, ranks=2))
    assert caught.value.signal == (number or signal.SIGINT)


def test_news_of_other_hosts_stop_training_whenever_they_come():
    """Before it begins, or while it is under way; those that came before the ranks met are no
    news."""
    changes, progress = Changes(), Progress()
    changes.on_hosts_updated(1, None)
    assert changes.told
    changes.forget()
    with Watched(progress, changes).reporting() as shown:
        assert not shown.stop
        changes.on_hosts_updated(2, None)
        assert "other hosts" in shown.stop
    with Watched(progress, changes).reporting() as shown:
        assert shown.stop
    changes.forget()
    with Watched(progress, changes).reporting() as shown:
        assert not shown.stop


def test_a_horovod_without_mpi_under_mpirun_is_refused(monkeypatch):
    """It would train as many models as there are processes, without a word."""
    without = SimpleNamespace(mpi_built=lambda: False)
    with pytest.raises(UserError, match=r"2 separate models.*--mpi yes --install"):
        refuse_without_mpi(Launched(0, 2, 0, 2, "mpirun"), without)
    refuse_without_mpi(Launched(0, 2, 0, 2, "horovodrun"), without)
    monkeypatch.setenv("HOROVOD_CONTROLLER", "gloo")
    with pytest.raises(UserError, match="HOROVOD_CONTROLLER is gloo"):
        refuse_without_mpi(Launched(0, 2, 0, 2, "mpirun"), SimpleNamespace(mpi_built=lambda: True))
    with pytest.raises(UserError, match="rank 1 of 2, but Horovod says rank 0 of 1"):
        check_size(Launched(1, 2, 1, 2, "mpirun"), SimpleNamespace(rank=lambda: 0, size=lambda: 1))


def test_a_build_says_all_that_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "torch_version", lambda: None)
    monkeypatch.setattr(build.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UserError) as caught:
        build.find_tools(True)
    for word in ("g++", "make", "cmake", "torch", "Python's headers", "mpicxx"):
        assert word in str(caught.value)


def test_a_wheel_is_kept_by_the_versions_it_depends_on(monkeypatch, tmp_path):
    tools = build.Tools("g++", "cmake", "Open MPI 4.1.4", "2.13.0")
    keys = {
        build.wheel_key(tools),
        build.wheel_key(build.Tools("clang++", "other", "Open MPI 4.1.4", "2.13.0")),
    }
    assert len(keys) == 1
    keys.add(build.wheel_key(build.Tools("g++", "cmake", None, "2.13.0")))
    keys.add(build.wheel_key(build.Tools("g++", "cmake", "Open MPI 4.1.4", "2.14.0")))
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    keys.add(build.wheel_key(tools))
    assert len(keys) == 4
    folder = tmp_path / build.wheel_key(tools)
    folder.mkdir()
    assert build.cached_wheel(tools, tmp_path) is None
    (folder / "horovod-0.28.1-cp311-cp311-linux_x86_64.whl").touch()
    assert (
        build.cached_wheel(tools, tmp_path)
        == folder / "horovod-0.28.1-cp311-cp311-linux_x86_64.whl"
    )


def test_a_build_that_fails_says_why_and_leaves_no_wheel(tmp_path, monkeypatch):
    """A compiler that fails, on the real pip and a source that is not the release."""
    broken = tmp_path / "horovod-0.28.1.tar.gz"
    broken.write_bytes(b"not the release")
    tools = build.Tools("g++", "cmake", None, "2.13.0")
    with pytest.raises(build.BuildError, match=r"(?s)could not be built.*build\.log"):
        build.build(tools, tmp_path / "cache", 1, broken)
    assert build.cached_wheel(tools, tmp_path / "cache") is None


def test_the_compiler_is_told_last_and_whatever_stands_before_it(tmp_path):
    """Also behind a ccache: the script is the compiler, and the last -std counts."""
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "g++"
    fake.write_text('#!/bin/sh\necho "$@"\n')
    fake.chmod(0o755)
    script = build._compiler(tmp_path, build.Tools(str(fake), "cmake", None, "2.13.0"))
    done = build.subprocess.run(
        [script, "-std=c++14", "-c", "a b.cc"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["-std=c++14", "-c", "a", "b.cc", "-std=c++17", "-g0"]


@pytest.mark.cluster
def test_what_is_installed_works_and_is_described():
    found = installed.found()
    assert found is not None
    assert found.torch == installed.torch_version()
    rows = diagnose.checks()
    assert all(well for _, well, _ in rows), rows
    assert any("gloo" in said for what, _, said in rows if what == "collectives")


def test_a_horovod_that_cannot_be_imported_is_a_finding(monkeypatch, tmp_path):
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("raise ImportError('undefined symbol')")
    with pytest.raises(diagnose.Unusable, match="undefined symbol"):
        diagnose.ask(tmp_path)


def test_a_horovod_is_asked_by_itself_under_a_launcher(monkeypatch):
    """Of a rank that an MPI such as MPICH started it was asked as that one."""
    for name in ("HOROVOD_GLOO_IFACE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MPI_LOCALRANKID"):
        monkeypatch.setenv(name, "1")
    given = {}

    def run(words, *, env, **_):
        given.update(env)
        raise diagnose.subprocess.TimeoutExpired(words, 1)

    monkeypatch.setattr(diagnose.subprocess, "run", run)
    with pytest.raises(diagnose.Unusable):
        diagnose.ask()
    left = [name for name in given if name.startswith(("HOROVOD_", "OMPI_", "PMI", "MPI_"))]
    assert sorted(left) == ["HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"]


def test_the_command_line_says_what_is_wrong(monkeypatch, capsys):
    from distcore_horovod import cli

    monkeypatch.setattr(diagnose, "problem", lambda: "It was built for another torch.")
    monkeypatch.setattr(sys, "argv", ["distcore-horovod", "check"])
    assert cli.main() == 1
    assert "another torch" in capsys.readouterr().out


def test_a_rank_whose_disk_is_full_is_named():
    with pytest.raises(OSError, match="full") as told:
        failed(1, OSError(errno.ENOSPC, "full")).raised()
    assert f"refused rank 1 on {socket.gethostname()} (no space left" in in_words(told.value)


def test_a_ranks_failure_has_its_traceback_unless_it_is_one_of_ours():
    class Closed(Exception):
        def __reduce__(self):
            raise TypeError("not to be pickled")

    def told(error):
        found = failed(1, error).error
        with pytest.raises(type(found)) as caught:
            failed(1, error).raised()
        notes = getattr(caught.value, "__notes__", [])
        return str(caught.value), sum(note.startswith("In rank 1:\n") for note in notes)

    assert told(KeyError(3)) == ("3", 1)
    assert told(Closed("gone")) == ("Closed: gone", 1)
    assert told(UserError("wrong")) == ("wrong", 0)
