"""horovodrun's elastic mode: hosts come and go, and the run ends as one that nobody disturbed,
every row used once an epoch.

The hosts are two names of the loopback, because a launcher gives up a host when one of its
processes dies.
"""

import json
import os
import re
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.cluster

RECORDED = Path(__file__).with_name("recorded")
JOBS = str(Path(__file__).with_name("process_group_jobs.py"))
A, B = "localhost:1", "127.0.0.1:1"
EPOCHS, STEPS = 30, 7


@pytest.fixture
def elastic(launch, tiny):
    """A folder with a config of EPOCHS epochs whose batches are planned for two ranks and
    recorded."""
    config = yaml.safe_load((tiny / "config.yaml").read_text())
    config["input_features"].append({"name": "z", "type": "number"})
    config["trainer"] = {
        "epochs": EPOCHS,
        "steps_per_checkpoint": 3,  # of the STEPS of an epoch: positions within an epoch
        "effective_batch_size": 64,
        "learning_rate_scaling": "constant",
        "early_stop": -1,
    }
    config["backend"]["loader"] = {"type": "recorded", "folder": "recorded"}
    (tiny / "recorded").mkdir()
    (tiny / "recorded" / "slow").touch()
    (tiny / "config.yaml").write_text(yaml.safe_dump(config))
    return Elastic(launch, tiny)


class Elastic:
    """A job under the elastic launcher."""

    def __init__(self, launch, folder):
        self.launch, self.folder = launch, folder
        script = folder / "discover.sh"
        script.write_text("#!/bin/sh\ncat hosts\n")
        script.chmod(0o755)

    def hosts(self, *hosts):
        """What the discovery script says from now on."""
        (self.folder / "new").write_text("".join(f"{host}\n" for host in hosts))
        os.replace(self.folder / "new", self.folder / "hosts")

    def start(self, ranks, *words):
        options = [
            "--gloo",
            "-np",
            ranks,
            "--min-np",
            1,
            "--max-np",
            2,
            "--network-interface",
            "lo",
        ]
        launcher = [
            *self.launch.launcher,
            *map(str, options),
            "--host-discovery-script",
            "./discover.sh",
        ]
        path = os.pathsep.join(filter(None, [str(RECORDED), os.environ.get("PYTHONPATH")]))
        return self.launch.start([*launcher, *words], self.folder, PYTHONPATH=path)

    def train(self, ranks, command="experiment", *more):
        words = [command, "-c", "config.yaml", "--dataset", "data.csv", "-od", "results", *more]
        return self.start(ranks, *self.launch.distcore(*words))

    def wait(self, process, what):
        """Until it is so."""
        while not what():
            assert process.poll() is None, self.launch.finish(process).text
            time.sleep(0.05)

    def records(self):
        """(when, epoch, step in it, rank, world, rows, process) of every batch so far, in order
        of time."""
        found = []
        for path in (self.folder / "recorded").glob("*.jsonl"):
            lines = path.read_text().splitlines()
            found += [(*json.loads(line), int(path.stem)) for line in lines if line.endswith("]")]
        return sorted(found)

    def steps(self):
        """The newest checkpoint's step, 0 if there is none."""
        names = [path.name for path in self.folder.glob("results/*/checkpoints/step-*")]
        return max(
            (int(name.removeprefix("step-")) for name in names if name[5:].isdigit()), default=0
        )

    def begun(self):
        """How many batches of the run two ranks have begun, its position and not a count: some
        are repeated."""
        return max(
            epoch * STEPS + step + 1
            for _, epoch, step, _, world, *_ in self.records()
            if world == 2
        )

    def process_of(self, rank, world):
        """The process that trained as this rank last, among so many."""
        return [each[6] for each in self.records() if each[3:5] == (rank, world)][-1]

    def lose(self, process, rank):
        """Kill a rank's process, a checkpoint after now, in a batch that the checkpoint does not
        hold."""
        reached = self.steps()
        self.wait(process, lambda: self.steps() > reached)
        self.wait(process, lambda: self.begun() > self.steps())
        victim = self.process_of(rank, 2)
        os.kill(victim, signal.SIGKILL)
        return victim

    def hurry(self):
        (self.folder / "recorded" / "slow").unlink()


def rows_of_epochs(records):
    """[sorted rows of each epoch] of the batches that count: if one was repeated after a loss,
    the last time."""
    batches = defaultdict(list)
    for _, epoch, step, rank, world, rows, _ in records:
        batches[epoch, step].append((rank, world, rows))
    epochs = defaultdict(list)
    for (epoch, step), found in batches.items():
        world = found[-1][1]
        last = found[-world:]
        assert sorted(rank for rank, _, _ in last) == list(range(world)), (epoch, step)
        for _, _, rows in last:
            epochs[epoch] += rows
    return [sorted(epochs[epoch]) for epoch in sorted(epochs)]


def undisturbed(job):
    """The run in this process: (test statistics, its training rows)."""
    import distcore
    from distcore_core.registry.manager import Plugins
    from distcore_data.cache import open_cache

    config = yaml.safe_load((job.folder / "config.yaml").read_text())
    config["backend"] = {
        "type": "local",
        "cache_dir": str(job.folder / "alone"),
        "trainer": {"type": "local"},
    }
    outcome = distcore.experiment(
        config, dataset=str(job.folder / "data.csv"), output_directory=job.folder / "alone"
    )
    with open_cache(
        distcore.preprocess(config, dataset=str(job.folder / "data.csv")), Plugins()
    ) as reader:
        rows = reader.read("train", 0, reader.rows("train"), ["z"]).column("z").to_pylist()
    return outcome.test_statistics, sorted(rows)


def as_undisturbed(job, ran):
    """One folder of results, with the scores of a run that nobody disturbed; every row was used
    once in every epoch; and it went on from a checkpoint, not from the beginning."""
    gone_on = [int(step) for step in re.findall(r"Going on after step (\d+) ", ran.text)]
    assert gone_on, ran.text
    assert min(gone_on) > 0, ran.text
    assert [each[1:3] for each in job.records()].count((0, 0)) <= 2, "begun anew"
    assert [path.name for path in job.folder.glob("results/*")] == ["experiment_run"]
    found = json.loads(
        (job.folder / "results" / "experiment_run" / "test_statistics.json").read_text()
    )
    expected, rows = undisturbed(job)
    for name, value in expected["y"].items():
        assert found["y"][name] == pytest.approx(value, rel=1e-3), name
    epochs = rows_of_epochs(job.records())
    assert len(epochs) == EPOCHS
    assert all(each == pytest.approx(rows, abs=1e-6) for each in epochs)


def test_a_host_joins_and_the_one_that_led_is_lost(elastic):
    """Begun by one rank; then two; then the one that began is killed, and the one that joined
    carries the command on."""
    elastic.hosts(A)
    process = elastic.train(1)
    elastic.wait(process, lambda: elastic.steps() > 0)
    elastic.hosts(A, B)
    elastic.wait(process, lambda: {each[4] for each in elastic.records()} == {1, 2})
    victim = elastic.lose(process, 0)
    elastic.wait(process, lambda: elastic.records()[-1][4] == 1)
    elastic.hurry()
    ran = elastic.launch.finish(process)
    assert ran.code == 0, ran.text
    assert "has joined. Going on with 2 ranks" in ran.text, ran.text
    assert f"rank 0 (process {victim} on " in ran.text, ran.text
    assert "leads from now on" in ran.text, ran.text
    as_undisturbed(elastic, ran)


def test_one_of_two_hosts_is_lost(elastic):
    """Rank 0 goes on alone, from the last checkpoint, with the same global batches."""
    elastic.hosts(A, B)
    process = elastic.train(2)
    elastic.wait(process, lambda: elastic.steps() > 0)
    victim = elastic.lose(process, 1)
    elastic.wait(process, lambda: elastic.records()[-1][4] == 1)
    elastic.hurry()
    ran = elastic.launch.finish(process)
    assert ran.code == 0, ran.text
    assert f"rank 1 (process {victim} on " in ran.text, ran.text
    assert re_done(elastic.records()), "no batch was repeated: was anybody lost?"
    as_undisturbed(elastic, ran)


def re_done(records):
    """Whether a step was made twice, by other ranks."""
    worlds = defaultdict(set)
    for _, epoch, step, _, world, _, _ in records:
        worlds[epoch, step].add(world)
    return any(len(each) > 1 for each in worlds.values())


@pytest.mark.slow
@pytest.mark.parametrize("stays", [A, B])
def test_a_host_that_the_launcher_takes_out(elastic, stays):
    """Nobody is killed: training stops at a checkpoint and goes on without it, whichever of the
    two led."""
    elastic.hosts(A, B)
    process = elastic.train(2)
    elastic.wait(process, lambda: elastic.steps() > 0)
    elastic.hosts(stays)
    elastic.wait(process, lambda: elastic.records()[-1][4] == 1)
    elastic.hurry()
    ran = elastic.launch.finish(process)
    assert ran.code == 0, ran.text
    as_undisturbed(elastic, ran)


@pytest.mark.slow
def test_both_hosts_are_lost_and_the_run_can_be_resumed(elastic):
    elastic.hosts(A, B)
    process = elastic.train(2)
    elastic.wait(process, lambda: elastic.steps() > 0)
    elastic.lose(process, 1)
    elastic.wait(process, lambda: elastic.records()[-1][4] == 1)
    os.kill(elastic.process_of(0, 1), signal.SIGKILL)
    ran = elastic.launch.finish(process)
    assert ran.code != 0
    reached = elastic.steps()
    elastic.hurry()
    ran = elastic.launch.finish(elastic.train(2, "experiment", "-mrp", "results/experiment_run"))
    assert ran.code == 0, ran.text
    assert f"Going on after step {reached} " in ran.text, ran.text
    as_undisturbed(elastic, ran)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [3, 4])
def test_tasks_of_a_lost_rank_are_done_again(elastic, victim):
    """Of one that followed (it has the odd ones), and of the one that led: results in order,
    once."""
    elastic.hosts(A, B)
    (elastic.folder / "victim").write_text(str(victim))
    ran = elastic.launch.finish(
        elastic.start(2, sys.executable, JOBS, "deadly", str(elastic.folder))
    )
    assert ran.code == 0, ran.text
    (found,) = [
        json.loads(line.partition("FOUND")[2]) for line in ran.text.splitlines() if "FOUND" in line
    ]
    assert found == {"rank": 0, "items": list(range(10)), "workers": 1}
    assert ("leads from now on" in ran.text) == (victim % 2 == 0), ran.text


@pytest.mark.slow
def test_a_rank_that_raises_ends_all(elastic):
    """An error is no loss: it would meet every other rank too."""
    elastic.hosts(A, B)
    ran = elastic.launch.finish(
        elastic.start(2, sys.executable, JOBS, "raising", str(elastic.folder))
    )
    assert "rank 1 (process" in ran.text, ran.text
    assert "ValueError: rank one gives up" in ran.text, ran.text
    assert ran.code == 0, ran.text  # the script catches it


@pytest.mark.slow
def test_a_mistake_in_the_config_ends_all(elastic):
    config = yaml.safe_load((elastic.folder / "config.yaml").read_text())
    config["trainer"]["learning_rat"] = 1
    (elastic.folder / "config.yaml").write_text(yaml.safe_dump(config))
    elastic.hosts(A, B)
    ran = elastic.launch.finish(elastic.train(2))
    assert ran.code != 0
    assert "learning_rat" in ran.text
