"""Calls from several threads of one process."""

import logging
import shutil
import threading
import time

import distcore
from distcore_report.runs import find_runs
from distcore_testing import data
from distcore_torch.training.determinism import one_training


def weights(outcome):
    return (outcome.model / "weights.safetensors").read_bytes()


def test_trainings_in_threads_have_the_weights_of_one_that_is_alone(tmp_path, caplog):
    """torch's random numbers are the process's: initial weights, and what dropout drops, were drawn
    by several threads from one stream."""
    combiner = {"type": "concat", "num_fc_layers": 1, "output_size": 16, "dropout": 0.5}
    config = data.config(str(tmp_path / "cache"), combiner=combiner)
    config["trainer"] = {"epochs": 4, "batch_size": 16}

    def train(name):
        return distcore.train(config, data.table(), output_directory=tmp_path / name, view="none")

    alone = train("alone")
    found, errors, over = [], [], threading.Event()

    def one(name):
        try:
            found.append(weights(train(name)))
        except BaseException as error:
            errors.append(error)

    def load():
        """What a server does meanwhile."""
        while not over.wait(0.01):
            distcore.load(alone.model)

    threads = [threading.Thread(target=one, args=(f"beside {n}",)) for n in range(3)]
    loading = threading.Thread(target=load)
    with caplog.at_level(logging.INFO, "distcore"):
        for each in (*threads, loading):
            each.start()
        for each in threads:
            each.join()
    over.set()
    loading.join()
    assert not errors, errors
    assert found == [weights(alone)] * 3
    assert "Another thread of this process trains; waiting for it" in caplog.text


def test_a_training_that_waits_for_another_says_so(tmp_path):
    """It was shown as one that trains and never comes to a round."""
    config, results = data.config(str(tmp_path / "cache")), tmp_path / "results"

    def train(**more):
        distcore.train(config, data.table(), output_directory=results, view="none", **more)

    def state():
        return [each.state for each in find_runs(results)] if results.is_dir() else []

    thread = threading.Thread(target=train)
    with one_training():
        thread.start()
        while thread.is_alive() and state() != ["waiting"]:
            time.sleep(0.05)
        assert state() == ["waiting"]
        shutil.copytree(results / "experiment_run", results / "killed")
        assert state() == ["waiting", "stopped"], "nobody holds the folder of the second"
    thread.join()
    assert state() == ["finished", "stopped"]
    assert not (results / "experiment_run" / "waiting.json").exists()
    (results / "killed").rename(results / "experiment_next")
    train(model_name="next")  # makes room, as any run that was killed so early
    assert state() == ["finished", "finished"]
