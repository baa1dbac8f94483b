"""The trainers through the whole system: under torchrun, with logs, with worker deaths from
outside, and their plans."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from safetensors.torch import load_file

import distcore
from distcore_core.errors import ArtifactError, CheckpointError, ConfigError, UserError
from distcore_local import trainers
from distcore_testing import data
from distcore_torch.training import checkpoint
from distcore_torch.training.ledger import LEDGER, read_ledger

pytestmark = pytest.mark.system

DDP_OF_TWO = {
    "type": "data_parallel",
    "num_workers": 2,
    "use_gpu": False,
    "resources_per_worker": {"CPU": 1},
}
TRAINER = {
    "epochs": 3,
    "effective_batch_size": 64,
    "learning_rate": 0.01,
    "learning_rate_scaling": "constant",
}


def config(folder, trainer, **options):
    made = data.config(str(folder / "cache"))
    made["trainer"] = {**TRAINER, **options}
    made["backend"]["trainer"] = trainer
    return made


def trained(folder, trainer, name="results", **options):
    return distcore.train(
        config(folder, trainer, **options), dataset=data.table(), output_directory=folder / name
    )


def weights(model):
    return {name: each.tolist() for name, each in load_file(model / "weights.safetensors").items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trainers")


@pytest.fixture(scope="module")
def ddp(folder):
    return trained(folder, DDP_OF_TWO)


def test_ddp_agrees_with_one_process_at_the_same_effective_batch_size(folder, ddp):
    local = trained(folder, {"type": "local"})
    ours, one = (each.training_statistics["validation"]["y"] for each in (ddp, local))
    for metric in ("loss", "roc_auc", "accuracy"):
        assert ours[metric] == pytest.approx(one[metric], abs=0.02)


def command(folder, name, trainer):
    """`distcore train` with its files written out."""
    import pyarrow.parquet as pq

    pq.write_table(data.table(), folder / "data.parquet")
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(config(folder, trainer)))
    return ["train", "--config", folder / f"{name}.yaml", "--dataset", folder / "data.parquet",
            "--output_directory", folder / name]  # fmt: skip


TORCHRUN = [
    *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
    *("-m", "distcore.cli.main"),
]


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("named", [{"type": "data_parallel"}, {}], ids=["named", "not named"])
def test_processes_of_torchrun_are_the_ranks(folder, ddp, named):
    """Also if the config names no trainer."""
    name = f"torchrun{len(named)}"
    arguments = command(folder, name, {**named, "use_gpu": False})
    done = subprocess.run(
        [*TORCHRUN, *map(str, arguments)], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (model,) = (folder / name).rglob("weights.safetensors")
    assert weights(model.parent) == weights(ddp.model)
    assert [each.name for each in (folder / name).iterdir()] == ["experiment_run"], "rank 0's alone"
    stages = [line.split()[0] for line in done.stderr.splitlines() if line.endswith("rows/s)")]
    assert stages.count("train") == 1, done.stderr


@pytest.mark.parametrize("stopped", [False, True])
def test_ranks_do_not_outlive_torchrun(folder, stopped):
    """A torchrun that was killed left its ranks training, beside the run that came next; and those
    that were stopped, for ever."""
    name = f"orphans{stopped}"
    arguments = command(folder, name, {"type": "data_parallel", "use_gpu": False})
    endless = ["--set", "trainer.epochs=1000000", "--set", "trainer.early_stop=-1"]
    launcher = subprocess.Popen(
        [*TORCHRUN, *map(str, arguments), *endless],
        env=environment(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not [*(folder / name).rglob("checkpoints/*")]:
        assert launcher.poll() is None
        time.sleep(0.2)
    ranks = psutil.Process(launcher.pid).children(recursive=True)
    for each in ranks if stopped else ():
        each.suspend()
    launcher.kill()
    _, left = psutil.wait_procs(ranks, timeout=120)
    assert len(ranks) >= 2
    assert not left
    assert "stopped by SIGTERM" in launcher.stderr.read()


def test_the_local_trainer_refuses_to_be_one_of_many(monkeypatch, folder):
    for name, value in {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="rank 1 of 2, but its trainer is one process"):
        trained(folder, {"type": "local"}, "refused")


def test_workers_write_their_logs_where_logdir_says(folder):
    trained(folder, {**DDP_OF_TWO, "logdir": str(folder / "logs")}, "logged", epochs=1)
    assert sorted(path.name for path in (folder / "logs").iterdir()) == ["rank-0.log", "rank-1.log"]


def test_one_worker_with_resources_is_a_process_of_its_own(folder):
    outcome = trained(folder, {**DDP_OF_TWO, "num_workers": 1}, "alone", epochs=1)
    assert outcome.model.is_dir()


def workers_of(process):
    """Processes below the command that train: they have opened the gradients' shared memory."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            maps = Path(f"/proc/{child.pid}/maps").read_text()
        except OSError:
            continue
        if "distcore-gradients" in maps:
            found.append(child.pid)
    return found


@pytest.mark.slow
def test_a_worker_killed_from_outside_is_started_again_and_the_weights_are_the_same(folder):
    """SIGKILL at some moment of training; long enough that there is such a moment."""
    options = {"epochs": 60, "early_stop": -1}
    made = config(folder, DDP_OF_TWO, **options)
    arguments = command(folder, "killed", DDP_OF_TWO)
    (folder / "killed.yaml").write_text(yaml.safe_dump(made))
    program = [sys.executable, "-m", "distcore.cli.main"]
    process = subprocess.Popen(
        [*program, *map(str, arguments)], env=environment(), stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 120
    while len(workers := workers_of(process)) < 2 or not list((folder / "killed").rglob("step-*")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end, "training never began"
        time.sleep(0.02)
    os.kill(workers[1], signal.SIGKILL)
    told = process.communicate(timeout=300)[1]
    assert process.returncode == 0, told
    whole = trained(folder, DDP_OF_TWO, "whole", **options)
    (model,) = (folder / "killed").rglob("weights.safetensors")
    assert weights(model.parent) == weights(whole.model)
    (statistics,) = (folder / "killed").rglob("training_statistics.json")
    assert json.loads(statistics.read_text()) == whole.training_statistics


def test_an_error_of_ours_in_the_ranks_travels_as_itself_and_is_not_retried(folder, caplog):
    """Initial weights of another model: every rank refuses them, and would again."""
    other = distcore.train(
        {
            **config(folder, {"type": "local"}, epochs=1),
            "combiner": {"type": "concat", "output_size": 3},
        },
        dataset=data.table(),
        output_directory=folder / "other",
    )
    with pytest.raises(ArtifactError, match=r"are of another model than the config's"):
        distcore.train(
            config(folder, {**DDP_OF_TWO, "max_retries": 3}),
            dataset=data.table(),
            output_directory=folder / "failed",
            model_load_path=other.model,
        )
    assert "started again" not in caplog.text


def test_a_checkpoint_that_finds_no_room_leaves_word_of_the_one_before(folder, monkeypatch):
    """The run could be gone on with, and nobody was told."""
    written = checkpoint.write_new_file

    def full(path, content):
        if "step-00000007" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(path, content)

    monkeypatch.setattr(checkpoint, "write_new_file", full)
    options = {"steps_per_checkpoint": 1, "batch_size": 32}
    with pytest.raises(CheckpointError) as caught:
        trained(folder, {"type": "local"}, "full", **options)
    said = f"step-00000006; go on from it with --model_resume_path {folder}/full/experiment_run"
    assert said in str(caught.value)
    monkeypatch.undo()
    again = distcore.train(
        config(folder, {"type": "local"}, **options),
        dataset=data.table(),
        model_resume_path=folder / "full" / "experiment_run",
    )
    whole = trained(folder, {"type": "local"}, "whole", **options)
    assert weights(again.model) == weights(whole.model)


def test_ddp_of_one_worker_is_one_process_that_meets_nobody(folder):
    """The bits of the trainer local, and nothing that listens."""
    alone = trained(
        folder, {"type": "data_parallel", "use_gpu": False, "num_workers": 1}, "one", epochs=1
    )
    local = trained(folder, {"type": "local", "use_gpu": False}, "none", epochs=1)
    assert weights(alone.model) == weights(local.model)


def test_what_is_visible_of_gpus_is_as_it_was_after_a_call(folder, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    distcore.train(
        config(folder, {"type": "local"}, epochs=1),
        dataset=data.table(),
        output_directory=folder / "hidden",
        gpus=-1,
    )
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "5"


def test_plans_say_where_one_process_would_do(folder):
    found = distcore.plan(config(folder, DDP_OF_TWO), dataset=data.table())
    text = json.dumps(found, default=str)
    assert "threads of one process are about as fast" in text


def test_a_number_of_workers_that_does_not_count_is_told_by_plan_and_run(folder, caplog):
    """`num_workers: 2` without a type of trainer was one process in silence."""
    said = "num_workers is 2, but the trainer `local` is one process; `data_parallel` has several"
    for workers, told in ((2, 1), (1, 0)):
        caplog.clear()
        trainer = {"num_workers": workers}
        found = distcore.plan(config(folder, trainer), dataset=data.table())
        assert found["training"]["notes"].count(said) == told
        trained(folder, trainer, f"with_{workers}", epochs=1)
        assert [each.getMessage() for each in caplog.records].count(f"{said}.") == told


@pytest.mark.parametrize(("given", "processes"), [(None, 2), (1, 1), (3, 3)])
def test_plans_say_in_how_many_processes_exact_training_goes_on(
    folder, monkeypatch, given, processes
):
    monkeypatch.setattr(trainers, "is_own_process", lambda: True)
    monkeypatch.setattr(trainers, "processors", lambda: 2)
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    trainer = {"type": "local", "num_workers": given}
    found = distcore.plan(config(folder, trainer, exact=True), dataset=data.table())
    training = found["training"]
    assert training["processes"] == processes
    assert ("measures its first steps" in str(training["notes"])) is (given is None)


@pytest.mark.parametrize("kind", ["data_parallel", "horovod"])
def test_a_machine_of_many_processors_is_not_refused_for_its_size(folder, monkeypatch, kind):
    """64 processors are more than exact training has parts, and than the loader has lanes. They
    stand for a machine that is not here: nothing is started."""
    monkeypatch.setattr("distcore_local.backend.processors", lambda: 64)
    for exact in (True, False):
        planned = distcore.plan(config(folder, {"type": kind}, exact=exact), data.table())
        assert planned["training"]["workers"] == 8


@pytest.mark.parametrize("kind", ["local", "data_parallel"])
def test_more_workers_than_parts_are_refused_by_the_plan_and_before_one_is_started(
    folder, monkeypatch, kind
):
    """The plan said nothing of it, and nine processes were started to say it."""
    monkeypatch.setattr("distcore_local.backend.LocalBackend.run_group", None)
    wanted = config(folder, {"type": kind, "num_workers": 9}, exact=True)
    for refused in (distcore.plan, distcore.train):
        with pytest.raises(ConfigError, match=r"trainer\.parts: 8 parts cannot be shared by 9"):
            refused(wanted, dataset=data.table())


def test_exact_training_in_as_many_processes_as_are_asked_for(folder):
    asked = {"type": "local", "num_workers": 3}
    several = trained(folder, asked, "several", exact=True)
    alone = trained(folder, {"type": "local", "num_workers": 1}, "alone", exact=True)
    assert weights(several.model) == weights(alone.model)
    ledger = read_ledger(Path(several.directory) / LEDGER)[0]
    assert [each.run["workers"] for each in ledger if each.run] == [3]


GROUP = """
import torch.distributed as dist
from distcore_core.contracts import Rank
from distcore_local.data_parallel import DataParallel
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
strategy = DataParallel(False)
strategy.setup(Rank())
assert strategy.gather("here") == ["here"]
strategy.teardown()
assert dist.is_initialized()
dist.destroy_process_group()
"""


def test_a_group_that_is_there_already_is_used_and_left():
    """In a program of the user's that has set up torch.distributed itself: a process of its own,
    because gloo's threads and the rest of a test run have hung together once."""
    subprocess.run([sys.executable, "-c", GROUP], check=True, timeout=300)
