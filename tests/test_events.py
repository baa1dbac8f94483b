"""Extensions: what each event tells, who hears it where, and that a listener that fails costs
nothing."""

import io
import json
import logging
import os
import signal
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pyarrow.csv as pacsv
import pytest
import torch

import distcore
from distcore.cli.main import main
from distcore_core.errors import ConfigError, DataError, PluginBroken, PluginNotFound, TrainingError
from distcore_core.events import EVENTS
from distcore_core.registry.listening import listening
from distcore_core.registry.manager import Plugins
from distcore_testing import data
from distcore_testing.installed import lay_metadata
from distcore_torch.guests import put_back

EXTENSION = '''
"""An extension that writes down everything it hears."""

import asyncio, json, os
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)

class Diary:
    def __init__(self, options):
        self.path = os.environ["DIARY"]
        self.seen = 0

    def write(self, event, **told):
        self.seen += 1
        with open(self.path, "a") as file:
            file.write(json.dumps({"event": event, "pid": os.getpid(), "seen": self.seen, **told}, default=str) + "\\n")

    @hookimpl
    def run_started(self, command, config, directory, address):
        self.write("run_started", command=command, config=config, directory=directory, address=address)

    @hookimpl
    def cache_written(self, key, directory, rows, seconds):
        self.write("cache_written", key=key, directory=directory, rows=rows, seconds=seconds)

    @hookimpl
    def epoch_finished(self, epoch, step, metrics, directory):
        self.write("epoch_finished", epoch=epoch, step=step, metrics=metrics, directory=directory)

    @hookimpl
    def checkpoint_saved(self, step, directory):
        self.write("checkpoint_saved", step=step, directory=directory, whole=os.path.isdir(directory))

    @hookimpl
    def predictions_written(self, path, rows):
        self.write("predictions_written", path=path, rows=rows, whole=os.path.isfile(path))

    @hookimpl
    def results_written(self, command, directory):
        self.write("results_written", command=command, directory=directory)

    @hookimpl
    def run_finished(self, command, directory, error):
        self.write("run_finished", command=command, directory=directory, error=error and type(error).__name__)

class Clumsy:
    """Fails at everything it hears."""
    @hookimpl
    def run_started(self): raise OSError("disk full")
    @hookimpl
    def epoch_finished(self, epoch): raise KeyError("loss") if epoch == 1 else SystemExit("log in")
    @hookimpl
    def checkpoint_saved(self): raise asyncio.CancelledError("no answer")
    @hookimpl
    def run_finished(self): raise RuntimeError("no connection")

class Budget:
    """Has enough after two evaluations, and returns what is no sentence before."""
    @hookimpl
    def epoch_finished(self, epoch):
        return "two epochs are enough." if epoch == 2 else epoch

class Untidy:
    """Leaves the process as another one when it is made, and at events."""
    def __init__(self, options=None):
        self.change()

    def change(self):
        import signal, sys, torch
        os.chdir("/")
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_float32_matmul_precision("medium")
        torch.autocast("cpu", torch.bfloat16).__enter__()
        torch.backends.mkldnn.enabled = False
        torch.use_deterministic_algorithms(True, warn_only=True)
        sys.setrecursionlimit(sys.getrecursionlimit() + 1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    @hookimpl
    def run_started(self): self.change()
    @hookimpl
    def epoch_finished(self): self.change()
    @hookimpl
    def run_finished(self): self.change()

class Closing:
    @hookimpl
    def run_started(self):
        import sys
        sys.stdout.close()
        sys.stderr.close()

class Unmarked:
    def run_started(self): pass

class Misspelt:
    @hookimpl
    def epoch_finnished(self, epoch): pass

class Greedy:
    @hookimpl
    def epoch_finished(self, epoch, weights): pass

class Wrapping:
    @hookimpl(wrapper=True)
    def distcore_make_loader(self, request):
        made = yield
        with open(os.environ["DIARY"], "a") as file:
            file.write(json.dumps({"event": "loader", "split": request.split}) + "\\n")
        return made

KINDS = {"diary": Diary, "clumsy": lambda options: Clumsy(), "misspelt": lambda options: Misspelt(),
         "greedy": lambda options: Greedy(), "budget": lambda options: Budget(), "wrapping": lambda options: Wrapping(),
         "untidy": Untidy, "closing": lambda options: Closing(), "unmarked": lambda options: Unmarked()}

@hookimpl
def distcore_make_extension(name, options):
    return KINDS[name](options) if name in KINDS else None

class Hello:
    help = "say hello"
    def add_arguments(self, parser):
        parser.add_argument("--name", default="world")
    def run(self, arguments):
        print(f"hello {arguments.name}")
        return 3

@hookimpl
def distcore_make_command(name):
    return Hello() if name == "hello" else None
'''


@pytest.fixture(autouse=True)
def diary(tmp_path, monkeypatch):
    """Installs the extensions; reads back what the diary holds."""
    site = tmp_path / "site"
    extensions = (
        "diary",
        "clumsy",
        "misspelt",
        "greedy",
        "wrapping",
        "budget",
        "untidy",
        "closing",
        "unmarked",
    )
    module = "diary_plugin"
    offers = {"extensions": dict.fromkeys(extensions, module), "commands": {"hello": module}}
    lay_metadata(site, "diary", offers)
    (site / f"{module}.py").write_text(EXTENSION)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("DIARY", str(tmp_path / "diary.jsonl"))
    monkeypatch.delitem(sys.modules, module, raising=False)

    def read():
        path = tmp_path / "diary.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    return read


def config(tmp_path, *extensions, **changes):
    return data.config(str(tmp_path / "cache"), extensions=list(extensions), **changes)


@pytest.mark.parametrize("rank", [0, 1])
def test_of_a_launchers_ranks_the_first_alone_tells(tmp_path, diary, monkeypatch, rank):
    """Under torchrun a run began twice, and one of the two ended in an error."""
    names = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1}
    for name, value in names.items():
        monkeypatch.setenv(name, str(value))
    distcore.preprocess(config(tmp_path, "diary"), data.table())
    events = [each["event"] for each in diary()]
    assert events == ([] if rank else ["run_started", "cache_written", "run_finished"])


@pytest.mark.parametrize("rank", [0, 1])
def test_of_a_launchers_ranks_the_first_alone_tells_of_trees(tmp_path, diary, monkeypatch, rank):
    """Each of them grows all; the second made the extension anew, which then heard of the rounds."""
    distcore.preprocess(config(tmp_path), data.table())
    names = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1}
    for name, value in names.items():
        monkeypatch.setenv(name, str(value))
    trees = {"type": "lightgbm", "num_boost_round": 2}
    changes = {"backend": {"type": "local", "cache_dir": str(tmp_path / "cache"), "trainer": trees}}
    written = config(tmp_path, "diary", trainer={}, **changes)
    distcore.train(written, data.table(), output_directory=tmp_path / "results")
    assert ("epoch_finished" in [each["event"] for each in diary()]) is (rank == 0)


@pytest.mark.system
def test_a_training_under_torchrun_is_told_once(tmp_path, diary):
    pacsv.write_csv(data.table(), tmp_path / "data.csv")
    (tmp_path / "config.json").write_text(json.dumps(config(tmp_path, "diary")))
    words = ["train", "--config", "config.json", "--dataset", "data.csv"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*torchrun, "-m", "distcore.cli.main", *words], cwd=tmp_path, check=True)
    told = diary()
    assert [each["event"] for each in told].count("run_started") == 1
    assert [each["error"] for each in told if each["event"] == "run_finished"] == [None]
    assert [each["event"] for each in told].count("epoch_finished") == 2


def test_every_event_of_an_experiment_in_order_and_by_one_object(tmp_path, diary):
    outcome = distcore.experiment(
        config(tmp_path, "diary"), data.table(), output_directory=tmp_path / "results"
    )
    told = diary()
    events = [each["event"] for each in told]
    assert set(events) == set(EVENTS) - {"trial_finished"}
    assert events[0] == "cache_written"
    assert events[1] == "run_started"
    assert events[-3:] == ["predictions_written", "results_written", "run_finished"]
    assert [each["seen"] for each in told] == list(range(1, len(told) + 1))
    by = {each["event"]: each for each in told}
    assert by["run_started"]["command"] == by["run_finished"]["command"] == "experiment"
    assert (
        by["run_started"]["directory"] == by["run_finished"]["directory"] == str(outcome.directory)
    )
    assert by["run_started"]["config"]["random_seed"] == 42
    assert by["run_started"]["address"] is None
    assert by["run_finished"]["error"] is None
    rows = by["cache_written"]["rows"]
    assert sum(rows.values()) == 600
    assert (
        by["predictions_written"] | {"rows": rows["test"], "whole": True}
        == by["predictions_written"]
    )
    epochs = [each for each in told if each["event"] == "epoch_finished"]
    assert [each["epoch"] for each in epochs] == [1, 2]
    losses = [each["metrics"]["validation"]["y"]["loss"] for each in epochs]
    assert losses == outcome.training_statistics["validation"]["y"]["loss"]
    assert all(each["whole"] for each in told if each["event"] == "checkpoint_saved")


def weights(outcome):
    return (outcome.model / "weights.safetensors").read_bytes()


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.system)])
def test_an_extension_that_asks_to_stop_ends_training_well(tmp_path, diary, caplog, workers):
    """With the model of what was trained, a checkpoint to go on from, and a line that says so."""

    def trained(*extensions, epochs, **more):
        options = {"epochs": epochs, "early_stop": -1}
        made = config(tmp_path, *extensions, trainer=options)
        made["backend"]["trainer"] = {"type": "data_parallel", "num_workers": workers}
        return distcore.train(made, data.table(), **more)

    stopped = trained("diary", "budget", epochs=5, output_directory=tmp_path / "stopped")
    assert len(stopped.training_statistics["validation"]["y"]["loss"]) == 2
    if workers == 1:  # another process warns by itself
        assert "Extension 'budget' answered 1: only a sentence ends training" in caplog.text
    why = "Extension 'budget' asked to stop: two epochs are enough."
    assert json.loads((stopped.model / "model.json").read_text())["extra"]["stopped"] == why
    by = {each["event"]: each for each in diary()}
    assert by["run_finished"]["error"] is None
    if workers > 1:  # a rank's warnings are its own
        return
    assert f"{why} Training ends after step" in caplog.text
    assert f"Go on from there with --model_resume_path {stopped.directory}" in caplog.text
    short = trained(epochs=2, output_directory=tmp_path / "short")
    assert weights(stopped) == weights(short)
    assert "stopped" not in json.loads((short.model / "model.json").read_text())["extra"]
    on = trained(epochs=3, model_resume_path=stopped.directory)
    assert weights(on) == weights(trained(epochs=3, output_directory=tmp_path / "whole"))


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.system)])
def test_what_an_extension_changes_of_the_process_is_put_back(
    tmp_path, monkeypatch, caplog, workers
):
    """The results lie where they were asked for, with the same bits, and ctrl-C ends the run."""
    monkeypatch.chdir(tmp_path)

    def trained(*extensions):
        made = data.config("cache", extensions=list(extensions))
        made["backend"]["trainer"] = {"type": "data_parallel", "num_workers": workers}
        return distcore.experiment(made, data.table(), output_directory="results")

    before = signal.getsignal(signal.SIGINT), sys.getrecursionlimit(), torch.get_default_device()
    precision = torch.backends.mkldnn.matmul.fp32_precision
    bare, untidy = trained(), trained("untidy")
    assert Path.cwd() == tmp_path
    assert (signal.getsignal(signal.SIGINT), sys.getrecursionlimit()) == before[:2]
    assert (torch.is_grad_enabled(), torch.get_default_dtype()) == (True, torch.float32)
    assert torch.get_default_device() == before[2]
    assert torch.backends.mkldnn.matmul.fp32_precision == precision
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32  # an error if the two do not fit
    assert not torch.is_autocast_enabled("cpu")
    assert torch.backends.mkldnn.enabled
    assert not torch.are_deterministic_algorithms_enabled()
    assert untidy.directory.resolve() == tmp_path / "results" / "experiment_run_1"
    assert weights(untidy) == weights(bare)
    assert untidy.test_statistics == bare.test_statistics
    undone = [each.getMessage() for each in caplog.records if "that was undone" in each.msg]
    assert undone[0].startswith("Extension 'untidy' as it was made changed the working directory,")
    assert undone[1].startswith("Extension 'untidy' at run_started changed the working directory,")


def test_a_stream_that_is_closed_in_the_place_of_a_programs_own_gives_way_to_it(
    monkeypatch, caplog
):
    mine = io.StringIO()
    monkeypatch.setattr(sys, "stdout", mine)
    with put_back("Extension 'x' at run_started"):
        sys.stdout = io.StringIO()
        sys.stdout.close()
    assert sys.stdout is mine
    with put_back("Extension 'x' at run_started"):
        sys.stdout.close()
    assert not sys.stdout.closed
    assert [each.getMessage() for each in caplog.records] == 2 * [
        "Extension 'x' at run_started changed sys.stdout (it was closed); that was undone"
    ]


def test_what_autocast_keeps_of_weights_goes_with_what_an_extension_left_on(caplog):
    """It keeps them until its last block ends, which one that is left open never does."""
    layer, rows = torch.nn.Linear(2, 1, bias=False), torch.ones(1, 2)

    def found():
        with torch.autocast("cpu", torch.bfloat16):
            return layer(rows).item()

    with put_back("Extension 'x' at run_started"):
        torch.autocast("cpu", torch.bfloat16).__enter__()
        found()
    with torch.no_grad():
        layer.weight.fill_(1.0)
    assert found() == 2.0
    with torch.no_grad():
        layer.weight.fill_(2.0)
    assert found() == 4.0
    assert [each.getMessage() for each in caplog.records] == [
        "Extension 'x' at run_started changed torch's autocast; that was undone"
    ]


@pytest.mark.parametrize("place", ["", "mkldnn", "mkldnn.conv", "cudnn", "cudnn.conv"])
def test_precisions_that_others_inherit_are_put_back(place, caplog):
    def precisions():
        places = ("", "mkldnn", "mkldnn.matmul", "mkldnn.conv", "cuda.matmul", "cudnn.conv")
        return [found(each).fp32_precision for each in places]

    def found(place):
        return attrgetter(place)(torch.backends) if place else torch.backends

    before = precisions()
    with put_back("Extension 'x' at run_started"):
        found(place).fp32_precision = "ieee"
    assert precisions() == before
    assert [each.getMessage().endswith("; that was undone") for each in caplog.records] == [True]


def test_a_working_folder_that_was_gone_before_is_not_put_back(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    os.chdir("gone")
    (tmp_path / "gone").rmdir()
    with put_back("Extension 'x' at run_started"):
        os.chdir("/")
    assert caplog.records == []


def test_an_extension_that_closes_the_standard_streams_costs_nothing(tmp_path):
    pacsv.write_csv(data.table(), tmp_path / "data.csv")
    (tmp_path / "config.json").write_text(json.dumps(config(tmp_path, "closing")))
    command = ["train", "--config", "config.json", "--dataset", "data.csv"]
    done = subprocess.run(
        [sys.executable, "-m", "distcore", *command], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Extension 'closing' at run_started changed sys.stdout (it was closed), sys.stderr" in (
        done.stderr
    )
    assert done.stdout.splitlines()[-1] == "results/experiment_run"


def test_a_cache_that_is_there_is_not_told(tmp_path, diary):
    for _ in range(2):
        distcore.preprocess(config(tmp_path, "diary"), data.table())
    assert [each["event"] for each in diary()].count("cache_written") == 1
    assert [each["command"] for each in diary() if each["event"] == "run_finished"] == [
        "preprocess",
        "preprocess",
    ]


def test_credentials_are_not_told(tmp_path, diary):
    secret = config(tmp_path, "diary")
    secret["backend"]["cache_credentials"] = {"key": "hush-hush"}
    distcore.preprocess(secret, data.table())
    assert "hush-hush" not in json.dumps(diary())


@pytest.mark.system
def test_rank_zero_of_a_worker_group_tells_an_object_of_its_own(tmp_path, diary):
    changed = config(tmp_path, "diary")
    changed["backend"]["trainer"] = {"type": "data_parallel", "num_workers": 2, "use_gpu": False}
    outcome = distcore.train(changed, data.table(), output_directory=tmp_path / "results")
    told = diary()
    elsewhere = [each for each in told if each["event"] in ("epoch_finished", "checkpoint_saved")]
    here = [each for each in told if each not in elsewhere]
    assert [each["epoch"] for each in elsewhere if each["event"] == "epoch_finished"] == [1, 2]
    rounds = [each for each in elsewhere if each["event"] == "epoch_finished"]
    assert [each["directory"] for each in rounds] == [str(outcome.directory)] * 2
    assert len({each["pid"] for each in elsewhere}) == 1
    assert {each["pid"] for each in here}.isdisjoint({each["pid"] for each in elsewhere})


@pytest.fixture
def model(tmp_path, diary):
    """A model that was trained with the diary, which is empty again."""
    made = distcore.train(
        config(tmp_path, "diary"), data.table(), output_directory=tmp_path / "results"
    ).directory
    (tmp_path / "diary.jsonl").unlink()
    return made


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_saved_models_extensions_hear_what_is_done_with_it(tmp_path, diary, model, command):
    getattr(distcore, command)(model, data.table(), output_directory=tmp_path / "out", trust=True)
    started, written, finished = diary()
    out = str(tmp_path / "out")
    assert started | {"event": "run_started", "command": command, "directory": out} == started
    assert {
        "input_features",
        "output_features",
        "preprocessing",
        "model",
        "random_seed",
    } <= started["config"].keys()
    assert [each["name"] for each in started["config"]["output_features"]] == ["y"]
    path = str(tmp_path / "out" / "predictions.parquet")
    assert (
        written | {"event": "predictions_written", "rows": 600, "path": path, "whole": True}
        == written
    )
    assert (
        finished | {"event": "run_finished", "command": command, "directory": out, "error": None}
        == finished
    )


def test_a_prediction_that_is_refused_tells_its_error(tmp_path, diary, model):
    with pytest.raises(DataError):
        distcore.predict(
            model, data.table().drop(["colour"]), output_directory=tmp_path / "out", trust=True
        )
    assert [each["event"] for each in diary()] == ["run_started", "run_finished"]
    assert diary()[-1]["error"] == "DataError"


def test_what_is_not_to_be_logged_of_a_model_is_not_told(tmp_path, diary, model):
    words = [
        "evaluate",
        "--model_path",
        str(model),
        "--dataset",
        str(tmp_path / "data.csv"),
        "--trust",
    ]
    words += ["--skip_save_log"]
    pacsv.write_csv(data.table(), tmp_path / "data.csv")
    assert main([*words, "--output_directory", str(tmp_path / "out")]) == 0
    assert diary() == []


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_the_extensions_of_a_model_that_is_not_trusted_are_not_made(
    tmp_path, diary, model, caplog, command
):
    """Their options are in the model's folder: a path to write, an address to call."""
    with caplog.at_level(logging.WARNING, "distcore"):
        getattr(distcore, command)(model, data.table(), output_directory=tmp_path / "out")
    assert "Nothing is told to extension 'diary'" in caplog.text
    assert "--trust" in caplog.text
    assert diary() == []


def test_a_model_opens_where_its_extension_is_not_installed(
    tmp_path, diary, model, monkeypatch, caplog
):
    monkeypatch.setenv("DISTCORE_BLOCK", "diary")
    with caplog.at_level(logging.WARNING, "distcore"):
        distcore.predict(model, data.table(), output_directory=tmp_path / "out", trust=True)
    assert "Nothing is told to extension 'diary'" in caplog.text
    assert "not installed" in caplog.text
    assert diary() == []


def test_a_run_whose_results_go_to_a_bucket_tells_the_address(tmp_path, diary):
    outcome = distcore.train(
        config(tmp_path, "diary"),
        data.table(),
        output_directory=f"memory://{tmp_path.name}/results",
    )
    (started,) = [each for each in diary() if each["event"] == "run_started"]
    assert started["address"] == outcome.directory
    distcore.predict(
        outcome.model,
        data.table(),
        output_directory=f"memory://{tmp_path.name}/out",
        trust=True,
    )
    started = [each for each in diary() if each["event"] == "run_started"][-1]
    assert started["address"] == f"memory://{tmp_path.name}/out"


def test_a_run_that_is_refused_tells_its_error(tmp_path, diary):
    with pytest.raises(DataError):
        distcore.train(
            config(tmp_path, "diary"),
            data.table().drop(["colour"]),
            output_directory=tmp_path / "results",
        )
    (only,) = diary()
    assert only | {"event": "run_finished", "error": "DataError", "directory": None} == only


def test_a_run_that_fails_in_training_tells_its_error(tmp_path, diary):
    broken = config(
        tmp_path, "diary", trainer={"epochs": 1, "learning_rate": 1e30, "batch_size": 64}
    )
    broken["output_features"] = [{"name": "z", "type": "number"}]
    with pytest.raises(TrainingError):
        distcore.train(broken, data.table(), output_directory=tmp_path / "results")
    assert diary()[-1]["error"] == "Diverged"


def test_a_listener_that_fails_is_a_warning_and_the_others_hear(tmp_path, diary, caplog):
    with caplog.at_level(logging.WARNING, "distcore"):
        outcome = distcore.train(
            config(tmp_path, "clumsy", "diary"), data.table(), output_directory=tmp_path / "out"
        )
    assert outcome.model.is_dir()
    assert (
        "Extension 'clumsy' failed at run_started and was passed over: OSError: disk full"
        in caplog.text
    )
    assert "'clumsy' failed at epoch_finished and was passed over: KeyError" in caplog.text
    assert (
        "'clumsy' failed at epoch_finished and was passed over: SystemExit: log in" in caplog.text
    )
    assert "'clumsy' failed at checkpoint_saved and was passed over: CancelledError" in caplog.text
    assert "'clumsy' failed at run_finished" in caplog.text
    assert [each["event"] for each in diary()].count("epoch_finished") == 2


def test_a_failing_run_keeps_its_own_error_when_listeners_fail_too(tmp_path):
    with pytest.raises(DataError, match="colour"):
        distcore.train(
            config(tmp_path, "clumsy"),
            data.table().drop(["colour"]),
            output_directory=tmp_path / "out",
        )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("misspelt", "epoch_finnished"),
        ("greedy", "weights"),
        ("unmarked", "no method is marked with @hookimpl"),
    ],
)
def test_an_extension_that_listens_wrongly_stops_the_run_before_it_begins(tmp_path, name, said):
    with pytest.raises(
        PluginBroken, match=rf"(?s)Extension '{name}' implements a hook wrongly.*{said}"
    ):
        distcore.train(config(tmp_path, name), data.table(), output_directory=tmp_path / "results")
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "cache").exists()


def test_an_extension_can_wrap_a_factory(tmp_path, diary):
    distcore.train(
        config(tmp_path, "wrapping"), data.table(), output_directory=tmp_path / "results"
    )
    assert {each["split"] for each in diary()} >= {"train", "validation"}


def test_the_same_extension_twice_is_two_listeners(tmp_path, diary):
    distcore.preprocess(config(tmp_path, "diary", "diary"), data.table())
    assert [each["event"] for each in diary()].count("run_finished") == 2


def test_a_run_inside_a_run_has_listeners_of_its_own(diary):
    outer, inner = Plugins(), Plugins()
    with listening([{"type": "diary"}], outer):
        with listening([], inner):
            inner.manager.hook.predictions_written(path="p", rows=1)
        outer.manager.hook.predictions_written(path="p", rows=2)
    assert [each["rows"] for each in diary()] == [2]


def test_an_extension_that_nobody_offers_is_a_mistake_of_the_config(tmp_path):
    with pytest.raises((ConfigError, PluginNotFound), match="diry"):
        distcore.train(
            config(tmp_path, "diry"), data.table(), output_directory=tmp_path / "results"
        )


def test_a_command_of_a_plugin():
    words = [sys.executable, "-m", "distcore.cli.main", "hello", "--name", "you"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "hello you\n")
