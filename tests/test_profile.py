"""`--profile`: the file is one that speedscope reads, with the stages of the run and the ranks that
it started; and the weights have the same bytes."""

import hashlib
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.conftest import Place, csv

from distcore.workflow.profile import Profile, heaviest, speedscope
from distcore_core.errors import Stopped
from distcore_data import profiling
from distcore_data.profiling import WAITING, Function, Part, Sampler
from distcore_testing.brake import Brake
from distcore_testing.rank_jobs import until


@pytest.fixture(autouse=True)
def looking_often(monkeypatch: Any) -> None:
    """In this process, so that what a fast machine does in a moment is seen, too."""
    monkeypatch.setattr(Sampler.__init__, "__defaults__", (0.001,))


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> Place:
    made = Place(tmp_path / "place", capsys)
    monkeypatch.chdir(made.folder)
    return made


def stacks_of(path: Path) -> dict[str, list[list[str]]]:
    """{thread: the names of each stack}, of a file that keeps to speedscope's format."""
    document = json.loads(path.read_text())
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    assert all(set(each) == {"name", "file"} for each in frames)
    assert document["activeProfileIndex"] < len(document["profiles"])
    found = {}
    for each in document["profiles"]:
        assert (each["type"], each["unit"], each["startValue"]) == ("sampled", "seconds", 0)
        assert len(each["samples"]) == len(each["weights"])
        assert each["endValue"] == pytest.approx(sum(each["weights"]))
        assert all(weight > 0 for weight in each["weights"])
        found[each["name"]] = [[frames[i]["name"] for i in stack] for stack in each["samples"]]
    return found


def weights_of(folder: Path) -> str:
    return hashlib.sha256((folder / "model" / "weights.safetensors").read_bytes()).hexdigest()


def test_an_experiment_and_its_predictions(place: Place, brake: Brake) -> None:
    more = ("--set", "trainer.epochs=10")
    brake.apply(after=52)  # of 60
    done = place.process("experiment", *more, "--profile", **brake.environment)
    assert done.code == 0, done.err
    folder = place.folder / "results" / "experiment_run"
    stacks = stacks_of(folder / "experiment.speedscope.json")
    stages = {stack[0] for stack in stacks["distcore, MainThread"]}
    assert {"stage: start", "stage: train"} <= stages
    trained = [each for each in stacks["distcore, MainThread"] if each[0] == "stage: train"]
    assert any("TrainLoop.run" in each for each in trained)
    assert "PROCESSOR SECONDS" in done.err
    assert "\ntrain " in done.err
    assert str(folder / "experiment.speedscope.json") in done.err
    assert str(place.folder) not in (folder / "experiment.speedscope.json").read_text()

    place.good("experiment", *more)
    assert weights_of(folder) == weights_of(place.folder / "results" / "experiment_run_1")

    # Enough rows that predicting takes longer than the time between two looks on a fast machine.
    many = place.write("many.csv", csv(100_000))
    place.good("predict", "--model_path", folder, "--dataset", many, "--profile")
    stages = stacks_of(place.folder / "results" / "predict.speedscope.json")
    assert any("stage: predict" in stack for each in stages.values() for stack in each)


def test_preprocessing_has_its_threads(place: Place) -> None:
    place.write(place.data, "age,city,bought\n" + "41.5,Rome,yes\n18.0,Oslo,no\n" * 300_000)
    place.good("preprocess", "--profile")
    stacks = stacks_of(place.folder / "preprocess.speedscope.json")
    assert any(name.startswith("distcore, distcore-rows") for name in stacks)


def test_ranks_of_this_machine(place: Place, brake: Brake) -> None:
    ranks = "{type: local, trainer: {type: data_parallel, num_workers: 2}}"
    more = ["--set", f"backend={ranks}", "--set", "trainer.train_steps=6", "--profile"]
    brake.apply(after=2)
    done = place.process("train", *more, **brake.environment)
    assert done.code == 0, done.err
    folder = place.folder / "results" / "experiment_run"
    stacks = stacks_of(folder / "train.speedscope.json")
    for rank in ("rank 0, MainThread", "rank 1, MainThread"):
        assert any("TrainLoop.run" in stack for stack in stacks[rank])


def test_trials_of_a_search(place: Place, brake: Brake) -> None:
    section = (
        "hyperopt={metric: roc_auc, output_feature: bought, goal: maximize, parameters: "
        "{trainer.learning_rate: {space: choice, categories: [0.001, 0.01]}}, "
        "executor: {type: local, num_samples: 2, max_concurrent_trials: 1}}"
    )
    brake.apply(after=0)
    words = ("--config", str(place.folder / place.config), "--set", section, "--profile")
    done = place.process("hyperopt", *words, **brake.environment)
    assert done.code == 0, done.err
    stacks = stacks_of(place.folder / "results" / "hyperopt_run" / "hyperopt.speedscope.json")
    for trial in ("trial 0000, MainThread", "trial 0001, MainThread"):
        assert all(stack[0] == "stage: trials" for stack in stacks[trial])
        assert any("TrainLoop.run" in stack for stack in stacks[trial])
    assert "\ntrials " in done.err
    assert "Not in it" not in done.err


def test_without_it_and_for_what_never_began_nothing_is_written(place: Place) -> None:
    place.good("preprocess")
    assert place.run("train", "--set", "trainer.epochs=none", "--profile").code == 2
    assert place.run("train", "--dataset", "nowhere.csv", "--profile").code == 2
    assert not list(place.folder.rglob("*.speedscope.json"))


@pytest.mark.parametrize("command", ["preprocess", "predict", "train"])
def test_only_a_profile_is_replaced(place: Place, command: str) -> None:
    more: tuple[object, ...] = ()
    folder = place.folder / "results" if command == "predict" else place.folder
    if command == "predict":
        place.good("train")
        more = ("--model_path", place.results)
    if command == "train":
        place.good("train")
        folder, more = place.results, ("--model_resume_path", place.results)
    path = folder / f"{command}.speedscope.json"
    path.write_text("{}")
    done = place.run(command, *more, "--profile")
    assert path.read_text() == "{}"
    assert f"{path.name} exists, is no profile of distcore's, and was left as it is" in done.err
    # Where a run's results come is not known before its work.
    assert done.code == (0 if command == "train" else 2)
    assert command == "train" or not list(folder.glob("predictions.parquet"))
    path.unlink()
    for _ in range(2):
        place.good(command, *more, "--profile", *(("--overwrite",) if command == "predict" else ()))
        stacks_of(path)


def test_a_profile_that_cannot_be_written_costs_nothing_else(
    tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(profiling.FOLDER, str(tmp_path / "gone"))
    with pytest.raises(Stopped), profiling.profiled_process("rank 0", "train"):
        raise Stopped("step-00000010 was saved.", 15)
    assert "The profile of rank 0 is lost" in caplog.text


def test_a_part_of_a_profile_that_cannot_be_read_costs_no_other(
    tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(profiling.FOLDER, str(tmp_path))
    with profiling.profiled_process("rank 1", "train"):
        until(lambda: False, 0.05)
    (tmp_path / "1 rank 0.json").write_text('[["train", 1.0], ["x"')
    parts, processor = profiling.of_processes(tmp_path)
    assert {each.process for each in parts} == {"rank 1"}
    assert set(processor) == {"train"}
    assert "A part of the profile cannot be read" in caplog.text


def test_a_round_of_trees_is_no_stage_of_its_own() -> None:
    """Of a thousand of them the table had a thousand lines."""
    profile = Profile("train")
    profile.session = SimpleNamespace(progress=SimpleNamespace(stage="train", stages_finished=[]))
    found = []
    for note in ("", "evaluating", "best validation loss 0.5 at 7"):
        profile.session.progress.note = note
        found.append(profile.stage())
    assert found == ["train", "train: evaluating", "train"]


def test_time_on_a_processor_and_waiting_are_told_apart() -> None:
    def work(until: threading.Event) -> None:
        while not until.is_set():
            sum(range(1000))

    done = threading.Event()
    busy = threading.Thread(target=work, args=(done,), name="busy")
    idle = threading.Thread(target=done.wait, name="idle")
    sampler = Sampler("here", lambda: "test", looking=0.001)
    sampler.start()
    busy.start()
    idle.start()
    seen = {("busy", False), ("MainThread", True)}
    while not seen <= {(name, waits) for _, name, waits, _ in list(sampler._found)}:
        time.sleep(0.01)
    done.set()
    busy.join()
    idle.join()
    parts = sampler.stop()
    assert not [each for each in parts if each.thread == "busy" and WAITING in each.stack]
    assert [each for each in parts if each.thread == "MainThread" and each.stack[-1] == WAITING]
    # What brings a thread that waits to its lock and back takes a moment of a processor.
    spent = {
        name: sum(each.seconds for each in parts if each.thread == name)
        for name in ("busy", "idle")
    }
    assert spent["idle"] < spent["busy"]


def test_the_heaviest_functions_and_one_frame_for_equal_ones() -> None:
    outer, inner = Function("outer", "a.py"), Function("inner", "b.py")
    parts = [
        Part("distcore", "MainThread", "train", (outer, inner), 2.0),
        Part("distcore", "MainThread", "train", (outer, inner, WAITING), 0.5),
        Part("rank 0", "MainThread", "train", (outer,), 1.0),
    ]
    busy, waiting = heaviest(parts)
    assert busy == {inner: 2.0, outer: 1.0}
    assert waiting == {inner: 0.5}
    document = speedscope("train", parts)
    names = [each["name"] for each in document["shared"]["frames"]]
    assert names == ["stage: train", "outer", "inner", WAITING.name]


def test_what_an_import_runs_is_one_row_of_its_package() -> None:
    """Half of a short training was told to go into asking whether files are there."""
    asking = Function("_path_stat", "<frozen importlib._bootstrap_external>")
    finding = Function("_find_and_load", "<frozen importlib._bootstrap>")
    run = Function("train", "distcore/interface.py")
    ours, theirs = (Function("<module>", f"{name}/__init__.py") for name in ("ours", "theirs"))
    made = Function("convert", "enum.py")
    stacks = [
        (run, finding, ours, finding, theirs, finding, asking),
        (run, finding, ours, finding, theirs, made),
        (run, finding, ours, made, WAITING),
        (run, finding, asking),
        (run, made),
    ]
    parts = [Part("distcore", "MainThread", "start", stack, 1.0) for stack in stacks]
    busy, waiting = heaviest(parts)
    assert busy == {Function("import", "theirs"): 2.0, Function("import"): 1.0, made: 1.0}
    assert waiting == {Function("import", "ours"): 1.0}
