"""Ranks on two hosts: over ssh, over a cable, and what is said when the other host fails. Both
are namespaces (hosts.py)."""

import hashlib
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from hosts import ADDRESSES, INTERFACE, NAMES, hosts_or_skip

pytestmark = pytest.mark.cluster

JOBS = str(Path(__file__).with_name("process_group_jobs.py"))
WHERE = ["-H", ",".join(f"{name}:1" for name in NAMES)]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with hosts_or_skip(tmp_path_factory.mktemp("hosts")) as made:
        yield made


@pytest.fixture
def on_two(launch, hosts):
    """The words before a command of two ranks, one a host, by launcher and folder; the first
    host launches."""
    return partial(words_on, launch, hosts)


def words_on(launch, hosts, launcher, folder):
    over_ssh = ["--mca", "oob_tcp_if_include", INTERFACE, "--mca", "btl_tcp_if_include", INTERFACE]
    given = [
        word
        for name in ("PATH", "OMP_NUM_THREADS", "PYTHONPATH")
        if name in os.environ
        for word in ("-x", name)
    ]
    more = [*over_ssh, *given] if launcher == "mpirun" else []
    return hosts[0].inside(*getattr(launch, launcher)(2), *WHERE, *more, folder=folder)


def weights(folder):
    files = sorted(Path(folder).glob("*/model/*.safetensors"))
    assert files
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]


def by_ddp(config, folder):
    """The same training by two ranks of ddp on this machine, into `expected`."""
    import distcore

    trainer = {"type": "data_parallel", "num_workers": 2, "use_gpu": False}
    config["backend"] |= {"type": "local", "cache_dir": str(folder / "alone"), "trainer": trainer}
    distcore.train(config, dataset=str(folder / "data.csv"), output_directory=folder / "expected")


@pytest.mark.parametrize("launcher", ["horovodrun", pytest.param("mpirun", marks=pytest.mark.slow)])
def test_an_experiment_on_two_hosts_has_the_bits_of_two_ranks_of_ddp_on_one(
    launch, tiny, hosts, on_two, launcher
):
    """And the gradients went over the cable."""
    before = hosts[1].bytes_received()
    words = launch.distcore(
        "experiment", "-c", "config.yaml", "--dataset", "data.csv", "-od", "results"
    )
    ran = launch.finish(launch.start([*on_two(launcher, tiny), *words], tiny))
    assert ran.code == 0, ran.text
    config = yaml.safe_load((tiny / "config.yaml").read_text())
    by_ddp(config, tiny)
    assert weights(tiny / "results") == weights(tiny / "expected")
    steps = max(int(path.name[5:]) for path in tiny.glob("results/*/checkpoints/step-*"))
    gradients = sum(
        path.stat().st_size for path in tiny.glob("expected/*/model/weights.safetensors")
    )
    assert hosts[1].bytes_received() - before > steps * gradients / 2


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["horovodrun", "mpirun"])
def test_both_hosts_take_part_and_an_error_is_named_with_its_host(
    launch, tmp_path, on_two, launcher
):
    ran = launch.finish(
        launch.start(
            [*on_two(launcher, tmp_path), sys.executable, JOBS, "tasks", str(tmp_path)], tmp_path
        )
    )
    assert ran.code == 0, ran.text
    (found,) = [
        json.loads(line.partition("FOUND")[2]) for line in ran.text.splitlines() if "FOUND" in line
    ]
    assert (found["workers"], found["nodes"], found["processes"]) == (2, 2, 2)
    ran = launch.finish(
        launch.start(
            [*on_two(launcher, tmp_path), sys.executable, JOBS, "raising", str(tmp_path)], tmp_path
        )
    )
    assert "on hostb) ended: ValueError: rank one gives up" in ran.text, ran.text


@pytest.mark.slow
def test_a_host_whose_own_name_leads_to_its_loopback_leads_under_mpirun(
    launch, tmp_path, tmp_path_factory
):
    """As Debian writes it into /etc/hosts; Horovod's own gloo does not go there."""
    with hosts_or_skip(tmp_path_factory.mktemp("debian"), own="127.0.1.1") as made:
        words = words_on(launch, made, "mpirun", tmp_path)
        ran = launch.finish(
            launch.start([*words, sys.executable, JOBS, "tasks", str(tmp_path)], tmp_path)
        )
    assert ran.code == 0, ran.text
    assert "FOUND" in ran.text, ran.text


def under_way(launch, folder, words, epochs=5000):
    """A long run that has saved a checkpoint."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["trainer"] |= {
        "epochs": epochs,
        "early_stop": -1,
        "effective_batch_size": 64,
        "learning_rate_scaling": "constant",
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    train = launch.distcore("train", "-c", "config.yaml", "--dataset", "data.csv", "-od", "results")
    process = launch.start([*words, *train], folder)
    while not list(folder.glob("results/*/checkpoints/step-*")):
        assert process.poll() is None, launch.finish(process).text
        time.sleep(0.05)
    return process


def rank_on(host):
    """The process of distcore there."""
    (found,) = [
        each.pid for each in host.processes() if each.cmdline()[1:3] == ["-m", "distcore.cli.main"]
    ]
    return found


@pytest.mark.slow
def test_a_rank_that_is_killed_on_the_other_host_is_named(launch, tiny, hosts, on_two):
    process = under_way(launch, tiny, on_two("horovodrun", tiny))
    victim = rank_on(hosts[1])
    os.kill(victim, signal.SIGKILL)
    ran = launch.finish(process)
    assert ran.code != 0
    assert f"rank 1 (process {victim} on hostb) has ended" in ran.text, ran.text
    assert "--model_resume_path" in ran.text, ran.text


@pytest.mark.slow
def test_ranks_without_a_launcher_meet_on_a_network_only_where_it_is_allowed(launch, tiny, hosts):
    """Two processes with torchrun's variables, one a host: refused on both before training, then
    the bits of ddp."""
    config = yaml.safe_load((tiny / "config.yaml").read_text())
    for allowed in (False, True):
        config["backend"] |= {
            "type": "local",
            "trainer": {"type": "horovod", "allow_network": allowed},
        }
        (tiny / "config.yaml").write_text(yaml.safe_dump(config))
        processes = []
        for rank, host in enumerate(hosts):
            told = {
                "RANK": rank,
                "WORLD_SIZE": 2,
                "LOCAL_RANK": 0,
                "MASTER_ADDR": ADDRESSES[0],
                "MASTER_PORT": 29511,
            }
            words = launch.distcore(
                "train", "-c", "config.yaml", "--dataset", "data.csv", "-od", f"results-{rank}"
            )
            told = {name: str(value) for name, value in told.items()}
            processes.append(launch.start(host.inside(*words, folder=tiny), tiny, **told))
        ran = [launch.finish(process) for process in processes]
        if not allowed:
            assert [each.code for each in ran] == [2, 2], ran[0].text + ran[1].text
            assert all("allow_network: true" in each.text for each in ran), ran[0].text
    assert [each.code for each in ran] == [0, 0], ran[0].text + ran[1].text
    by_ddp(config, tiny)
    assert weights(tiny / "results-0") == weights(tiny / "expected")


@pytest.mark.slow
def test_the_elastic_launcher_goes_on_when_the_other_host_is_cut_off(
    launch, tiny, tmp_path_factory
):
    """Nobody says goodbye: the launcher learns it from ssh, the rank from a timeout of
    Horovod's."""
    with hosts_or_skip(tmp_path_factory.mktemp("cut")) as (first, second):
        script = tiny / "discover.sh"
        script.write_text(f"#!/bin/sh\nprintf '{NAMES[0]}:1\\n{NAMES[1]}:1\\n'\n")
        script.chmod(0o755)
        options = ["-np", "2", "--min-np", "1", "--max-np", "2", "--gloo-timeout-seconds", "10"]
        elastic = [*launch.launcher, "--gloo", *options, "--host-discovery-script", "./discover.sh"]
        process = under_way(launch, tiny, first.inside(*elastic, folder=tiny), epochs=400)
        second.unplug()
        ran = launch.finish(process)
    assert ran.code == 0, ran.text
    assert (
        "on hostb) is gone. Going on with 1 rank" in ran.text or "leads from now on" in ran.text
    ), ran.text
