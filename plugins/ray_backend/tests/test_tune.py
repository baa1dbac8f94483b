"""Ray Tune as executor: what every executor must hold, and real searches on a cluster of three
nodes."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet
import pytest

import distcore
from distcore_core.errors import UserError
from distcore_testing import ExecutorSuite, PluginSuite, data

pytestmark = pytest.mark.cluster


class TestPlugin(PluginSuite):
    kind, name = "executors", "ray"


@pytest.mark.slow
@pytest.mark.usefixtures("nodes")
class TestTune(ExecutorSuite):
    name = backend = "ray"


# ------------------------------------------------------------------ searches

PARAMETERS = {
    "trainer.learning_rate": {"space": "loguniform", "lower": 0.001, "upper": 0.1},
    "combiner.output_size": {"space": "choice", "categories": [8, 16]},
}


def config(folder: Path, **executor):
    section = {
        "goal": "maximize",
        "metric": "roc_auc",
        "output_feature": "y",
        "parameters": PARAMETERS,
        "search_alg": {"type": "variant_generator"},
        "executor": {"type": "ray", "num_samples": 2, **executor},
    }
    backend = {"type": "ray", "cache_dir": str(folder / "cache"), "processor": {"type": "local"}}
    backend["trainer"] = {"type": "data_parallel", "num_workers": 2}
    return data.config(str(folder / "cache"), backend=backend, hyperopt=section)


@pytest.mark.slow
@pytest.mark.usefixtures("nodes")
def test_trials_that_train_on_several_workers_are_those_of_one_machine(tmp_path):
    """A Ludwig section for Ray; the same trials, and the same scores, as by the local executor
    on the local backend."""
    written = config(tmp_path)
    outcome = distcore.hyperopt(written, data.table(), output_directory=tmp_path / "ray")
    assert [each["state"] for each in outcome.trials] == ["finished"] * 2
    assert distcore.load(outcome.model).predict(data.table()).num_rows == 600
    written["hyperopt"]["executor"]["type"] = "local"
    written["backend"] = {
        "type": "local",
        "cache_dir": str(tmp_path / "cache"),
        "trainer": {"type": "data_parallel", "num_workers": 2},
    }
    local = distcore.hyperopt(written, data.table(), output_directory=tmp_path / "local")
    assert [each["parameters"] for each in outcome.trials] == [
        each["parameters"] for each in local.trials
    ]
    assert [each["score"] for each in outcome.trials] == pytest.approx(
        [each["score"] for each in local.trials], abs=1e-6
    )


@pytest.mark.slow
@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("trainer", ["lightgbm", "xgboost"])
def test_trials_of_trees_are_one_process_each(tmp_path, trainer):
    """With the trees, and so the scores, of trials on one machine."""
    written = config(tmp_path, num_samples=3)
    written["backend"]["trainer"] = {"type": trainer, "num_threads": 1, "num_boost_round": 20}
    rates = {"space": "loguniform", "lower": 0.01, "upper": 0.3}
    written["hyperopt"]["parameters"] = {"backend.trainer.learning_rate": rates}
    outcome = distcore.hyperopt(written, data.table(), output_directory=tmp_path / "ray")
    assert [each["state"] for each in outcome.trials] == ["finished"] * 3
    written["hyperopt"]["executor"]["type"] = "local"
    written["backend"]["type"] = "local"
    local = distcore.hyperopt(written, data.table(), output_directory=tmp_path / "local")
    assert [(each["parameters"], each["score"]) for each in outcome.trials] == [
        (each["parameters"], each["score"]) for each in local.trials
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("nodes")
def test_a_trial_that_is_stopped_gives_its_workers_places_back(tmp_path):
    """Three fit at once; the later ones waited for ever."""
    scheduler = {"type": "asha", "grace_period": 1, "max_t": 1}
    written = config(tmp_path, num_samples=5, scheduler=scheduler)
    written["trainer"] = {"epochs": 1000, "early_stop": -1, "batch_size": 64}
    outcome = distcore.hyperopt(written, data.table(), output_directory=tmp_path / "results")
    assert [each["state"] for each in outcome.trials] == ["stopped"] * 5
    assert all(each["rounds"] for each in outcome.trials)


@pytest.mark.slow
@pytest.mark.usefixtures("nodes")
def test_a_trial_whose_process_is_killed_goes_on_in_another(tmp_path):
    """Its node was lost, say. A trial that fails by itself is not repeated."""
    written = config(tmp_path, num_samples=1, max_retries=1, max_concurrent_trials=1)
    written["hyperopt"]["parameters"] = {
        "trainer.learning_rate": {"space": "grid_search", "values": [0.01, 1e30]}
    }
    written["backend"]["type"] = "local"
    written["backend"]["trainer"] = {"type": "local"}
    written["trainer"] = {"epochs": 30, "early_stop": -1, "batch_size": 8}
    rounds = tmp_path / "results" / "hyperopt_run" / "trials" / "0000" / "rounds.jsonl"
    killed = []

    def kill():
        until(
            lambda: rounds.exists() and len(rounds.read_text().splitlines()) > 3, 300, "four rounds"
        )
        for each in processes_with(rounds.with_name("log.txt")):
            os.kill(each, signal.SIGKILL)
            killed.append(each)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(kill)
        outcome = distcore.hyperopt(written, data.table(), output_directory=tmp_path / "results")
        done.result()
    assert len(killed) == 1
    good, bad = sorted(outcome.trials, key=lambda each: each["parameters"]["trainer.learning_rate"])
    assert (good["state"], bad["state"]) == ("finished", "failed")
    assert "Going on after step" in (rounds.parent / "log.txt").read_text()
    assert "loss" in bad["error"]
    log = rounds.parent.with_name("0001") / "log.txt"
    assert log.read_text().count("Trial 0001 failed") == 1


@pytest.mark.usefixtures("nodes")
def test_more_trials_than_fit_are_refused_before_anything_is_left_behind(tmp_path):
    written = config(tmp_path, num_samples=4, max_concurrent_trials=4)
    with pytest.raises(
        UserError, match=r"4 trials at once × .0 for itself \+ 2 workers × 1 CPUs. = 8 CPUs.* has 6"
    ):
        distcore.hyperopt(written, data.table(), output_directory=tmp_path / "results")
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["local", "ray"])
@pytest.mark.usefixtures("nodes")
def test_a_killed_driver_goes_on_where_it_was(tmp_path, backend):
    """No finished trial is repeated, an interrupted one goes on from its checkpoint, and there
    are as many as asked."""
    written = config(tmp_path, num_samples=3, max_concurrent_trials=1)
    if backend == "local":  # each trial trains in its own process on the cluster
        written["backend"] = {"type": "local", "cache_dir": str(tmp_path / "cache")}
    written["trainer"] = {"epochs": 30, "early_stop": -1, "batch_size": 64}
    (tmp_path / "config.json").write_text(json.dumps(written))
    pyarrow.parquet.write_table(data.table(), tmp_path / "data.parquet")
    words = ["--config", str(tmp_path / "config.json"), "--dataset", str(tmp_path / "data.parquet")]
    words = [
        sys.executable,
        "-m",
        "distcore.cli.main",
        "hyperopt",
        *words,
        "--output_directory",
        str(tmp_path / "results"),
    ]
    folder = tmp_path / "results" / "hyperopt_run"
    process = subprocess.Popen(
        words, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )

    def records():
        return {
            path.parent.name: json.loads(path.read_text())
            for path in folder.glob("trials/*/trial.json")
        }

    def half_done():
        states = {name: each["state"] for name, each in records().items()}
        begun = [name for name, state in states.items() if state == "running"]
        saved = any(
            folder.glob(f"trials/{name}/checkpoints/step-*/manifest.json") for name in begun
        )
        return ("finished" in states.values() and saved) or process.poll() is not None

    until(half_done, seconds=400, what="a finished trial and a checkpoint of another")
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    ended = {name: each for name, each in records().items() if each["state"] == "finished"}
    assert ended
    assert len(ended) < 3
    done = subprocess.run(
        [*words, "--model_resume_path", str(folder)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    found = records()
    assert len(found) == 3
    assert {each["state"] for each in found.values()} == {"finished"}
    assert {name: found[name] for name in ended} == ended
    for name in found:  # from its checkpoint: no round comes a second time
        lines = (folder / "trials" / name / "rounds.jsonl").read_text().splitlines()
        steps = [json.loads(line)["step"] for line in lines]
        assert steps == sorted(set(steps)), name


def until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} never came"
        time.sleep(0.05)


def processes_with(path):
    """Those that have the file open."""
    found = set()
    for each in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(each) == str(path):
                found.add(int(each.parts[2]))
    return found
