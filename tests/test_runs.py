"""`distcore runs` and `distcore compare`: what lies in a folder of runs, and what differs
between them."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.conftest import a_round

import distcore
from distcore.cli.main import main
from distcore.config import document_of
from distcore.config.overrides import override
from distcore.workflow.folders import gone_if_refused
from distcore.workflow.training_log import training_log
from distcore_core.errors import DistcoreError, UserError
from distcore_core.io.atomic import write_file
from distcore_core.progress import Progress
from distcore_data.locks import locked
from distcore_data.seals import sealed, unsealed
from distcore_data.table import width_of
from distcore_report.compare import (
    WIDE,
    differences,
    in_doubt,
    in_words,
    metrics,
    on_a_page,
    rows_differ,
    several,
    sparks,
    units_differ,
)
from distcore_report.runs import Run, find_runs, read_run, trained_seconds
from distcore_report.runs_command import row, shown
from distcore_search.objective import Objective

PENGUINS = Path(__file__).parent.parent / "examples" / "penguins"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs in `results`, of which only the second was tested; beside them the data."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("config.yaml", "penguins.csv"):
        shutil.copy(PENGUINS / name, folder)
    more = ["trainer.learning_rate=0.02", "input_features.sex.type=category"]
    for name, work, settings in (
        ("first", distcore.train, []),
        ("second", distcore.experiment, more),
    ):
        config = override(document_of(folder / "config.yaml"), ["trainer.epochs=2", *settings])
        data, results = folder / "penguins.csv", folder / "results"
        work(config, dataset=data, output_directory=results, model_name=name)
    return folder


def test_runs_lists_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(folder / "results")]) == 0
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == [
        "RUN",
        "STATE",
        "BEGUN",
        "TRAINED",
        "EVALUATIONS",
        "METRIC",
        "BEST",
        "AT",
        "TEST",
    ]
    assert first.startswith("experiment_first ")
    assert "finished" in first
    assert first.endswith(" -")
    assert main(["runs", str(folder / "results"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)[1]
    scores = json.loads(
        (folder / "results" / "experiment_second" / "test_statistics.json").read_text()
    )
    assert told["test"] == scores
    assert (told["state"], told["evaluations"]) == ("finished", 2)
    description = json.loads((folder / "results/experiment_second/description.json").read_text())
    assert told["data"] == description["data"]["digest"]
    assert 0 <= time.time() - datetime.fromisoformat(told["begun"]).timestamp() < 3600
    assert told["watched"] == {"split": "validation", "feature": "species", "metric": "accuracy"}
    assert second.split()[-1] == f"{scores['species']['accuracy']:.6g}"


def test_compare_says_what_differs(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        main(
            [
                "compare",
                *(str(folder / "results" / f"experiment_{name}") for name in ("first", "second")),
            ]
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if line.startswith("trainer.")] == [
        ["trainer.learning_rate", "0.005", "0.02"]
    ]
    assert any(line.startswith("test species accuracy ") for line in lines)
    assert any(
        line.startswith("validation species accuracy by evaluation, from ") for line in lines
    )
    assert lines[-1] == "comparison.html"
    page = (tmp_path / "comparison.html").read_text()
    assert "other units" not in "".join(lines) + page
    assert "of other rows" not in "".join(lines) + page
    assert "trainer.learning_rate" in page
    assert page.count("<svg") == 3
    HTMLParser().feed(page)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("output_features[net.price].preprocessing.normalization", True),
        ("output_features[net.price].loss.type", True),
        ("output_features[net.price].loss", True),
        ("output_features[net.price].preprocessing.missing_value_strategy", False),
        ("input_features[net.price].preprocessing.normalization", False),
    ],
)
def test_losses_in_other_units_are_told(option: str, said: bool) -> None:
    sentence = "The loss of net.price is in other units from run to run: compare by another metric."
    found = [("trainer.epochs", "2", "3"), (option, "-", "other")]
    assert [*units_differ(found)] == ([sentence] if said else [])


def test_of_thousands_of_columns_the_first_that_differ_are_compared() -> None:
    """Two runs of 10,000 other columns were a table of 19 MB, the trainer's options at its end."""

    def run(name: str, epochs: int) -> Run:
        features = [{"name": f"{name}{each}", "type": "number"} for each in range(2000)]
        config = {"input_features": features, "trainer": {"epochs": epochs}}
        return Run(name, "", "", "finished", config=config)

    _, told, *_ = in_words([run("a", 1), run("b", 2)])
    lines = told.splitlines()
    assert lines[1].split() == ["trainer.epochs", "1", "2"]
    assert len(lines) == 102
    assert lines[-1].split("  ")[0] == "and 3,902 more"


def test_the_order_of_features_is_a_difference() -> None:
    """It decides which weights are drawn, and the configs were called the same."""

    def run(names: Sequence[str]) -> Run:
        config = {"input_features": [{"name": name, "type": "number"} for name in names]}
        return Run("run", "", "", "finished", config=config)

    _, told, *_ = in_words([run("ab"), run("ba")])
    order = 'input_features (their order)  ["a", "b"]  ["b", "a"]'
    assert told.splitlines()[1].split() == order.split()
    _, told, *_ = in_words([run([str(each) for each in range(5000)]), run("ab")])
    assert max(map(len, told.splitlines())) < 240


def test_many_runs_are_compared_in_lines_that_can_be_read() -> None:
    def told(runs: int, options: int) -> list[str]:
        made = [
            Run(
                f"experiment_run_{number}",
                *("", "", "finished"),
                config={f"an_option_{each}": number * each for each in range(1, options + 1)},
            )
            for number in range(runs)
        ]
        return [*in_words(made)][1].splitlines()

    assert told(6, 90)[0].split() == ["CONFIG", *(f"experiment_run_{each}" for each in range(6))]
    assert len(told(6, 90)) == 91
    assert told(20, 3)[0].split() == ["RUN", "an_option_1", "an_option_2", "an_option_3"]
    assert len(told(20, 3)) == 21
    lines = told(30, 40)
    assert max(map(len, lines)) <= 120
    assert sum(line.startswith("CONFIG") for line in lines) == 6
    assert sum(line.startswith("an_option_40") for line in lines) == 6


@pytest.mark.parametrize("best", [None, 0.2])
def test_of_runs_that_pick_no_round_the_last_scores_are_compared(best: float | None) -> None:
    """Without validation rows no score stood there."""
    split = "training" if best is None else "validation"
    told = {"split": split, "feature": "y", "metric": "loss"}
    log = [
        {**told, "evaluation": at, "best": best, "metrics": {split: {"y": {"loss": value}}}}
        for at, value in enumerate([0.2, 0.4], 1)
    ]
    runs = [Run(name, "", "finished", log=log) for name in ("one", "other")]
    kind = "last" if best is None else "best"
    value = "0.4" if best is None else "0.2"
    assert metrics(runs) == [(f"{kind} {split} y loss", value, value)]


def test_a_page_says_that_it_draws_some_of_many_runs_alone() -> None:
    log = [{"split": "s", "feature": "y", "metric": "loss", "metrics": {"s": {"y": {"loss": 1.0}}}}]
    runs = [Run(f"run_{number}", "", "finished", log=log) for number in range(9)]
    sentence = "Of 9 runs the first 8 are drawn"
    assert sentence in "".join(on_a_page(runs))
    assert "are drawn" not in "".join(on_a_page(runs[:8]))


def test_a_comparison_tells_of_losses_in_other_units(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ["trainer.epochs=1", "output_features.species.loss.type=focal"]
    config = override(document_of(folder / "config.yaml"), settings)
    other = distcore.train(config, dataset=folder / "penguins.csv", output_directory=tmp_path)
    first = str(folder / "results" / "experiment_first")
    assert main(["compare", first, str(other.directory)]) == 0
    sentence = "The loss of species is in other units from run to run"
    assert sentence in capsys.readouterr().out
    assert sentence in Path("comparison.html").read_text()


def test_a_comparison_tells_of_scores_of_other_rows(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Last night's run and this night's had scores side by side, and no word of their data."""
    monkeypatch.chdir(tmp_path)
    lines = (folder / "penguins.csv").read_text().splitlines(keepends=True)
    (tmp_path / "grown.csv").write_text("".join([*lines, *lines[-40:]]))
    (tmp_path / "other.csv").write_text("".join([lines[0], *reversed(lines[1:])]))
    config = override(document_of(folder / "config.yaml"), ["trainer.epochs=1"])
    first = str(folder / "results" / "experiment_first")
    for name in ("grown.csv", "other.csv"):
        other = distcore.train(config, dataset=tmp_path / name, output_directory=tmp_path)
        assert main(["compare", first, str(other.directory)]) == 0
        assert "The scores are of other rows" in capsys.readouterr().out
        assert "The scores are of other rows" in Path("comparison.html").read_text()


@pytest.mark.parametrize("command", ["compare", "report"])
def test_a_page_takes_the_place_of_pages_alone(
    folder: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(folder / "results" / f"experiment_{name}") for name in ("first", "second")]
    words = [command, *(runs if command == "compare" else runs[:1]), "--output"]
    page, table = tmp_path / "page.html", tmp_path / "data.csv"
    assert main([*words, str(page)]) == main([*words, str(page)]) == 0
    for content in ("x,y\n1,2\n", "", "<!doctype html>\n<html><head><title>Mine</title></head>"):
        table.write_text(content)
        assert main([*words, str(table)]) == 2
        said = f"{table} exists, is no page of distcore's, and was left as it is"
        assert said in capsys.readouterr().err
        assert table.read_text() == content


@pytest.mark.parametrize("command", [["runs"], ["compare", "--output", "page.html"]])
@pytest.mark.parametrize("name", ["training_log.jsonl", "test_statistics.json", "description.json"])
def test_what_was_changed_is_told_and_not_shown(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    command: list[str],
    name: str,
) -> None:
    """One digit, and bytes that are no text: another score was listed without a word, or no run at
    all."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.getLogger("distcore"), "propagate", True)
    first, second = (tmp_path / each for each in ("first", "second"))
    for each in (first, second):
        shutil.copytree(folder / "results" / "experiment_second", each)
    changed = second / name
    content = changed.read_bytes()
    at = content.rindex(b"0.")
    for damage in (content[:at] + b"9" + content[at + 1 :], b"\xff\n" + content):
        changed.write_bytes(damage)
        caplog.clear()
        assert main([*command, *([str(first), str(second)] if command[1:] else ["."])]) == 0
        assert f"{name}" in caplog.text
        assert "was changed after it was written" in caplog.text


@pytest.mark.system
def test_a_search_is_compared_by_its_trials(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (folder / "config.yaml").read_text().replace("epochs: 40", "epochs: 1")
    search = (
        "hyperopt: {parameters: {trainer.learning_rate: {space: choice, categories: [0.001, "
        "0.01]}}, search_alg: "
    )
    config = folder / "search.yaml"
    config.write_text(text + search + "{type: variant_generator}, executor: {num_samples: 2}}\n")
    words = [
        "-c",
        str(config),
        "--dataset",
        str(folder / "penguins.csv"),
        "-od",
        str(folder / "searches"),
        "-l",
        "error",
    ]
    assert main(["hyperopt", *words]) == 0
    capsys.readouterr()
    output = str(folder / "trials.html")
    assert main(["compare", str(folder / "searches"), "--output", output]) == 0
    out = capsys.readouterr().out
    assert "trainer.learning_rate" in out
    assert out.count("finished") >= 2
    assert "extensions" not in out  # each trial's rounds.jsonl, by its whole path


def test_trials_are_ranked_by_their_search(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before the search is over; their trainers keep weights by another metric."""
    search = tmp_path / "hyperopt_run"
    section = {
        "metric": "accuracy",
        "output_feature": "y",
        "goal": "maximize",
        "parameters": {"trainer.learning_rate": {"space": "uniform", "lower": 0, "upper": 1}},
    }
    for name, accuracies, losses in (
        ("0000", [0.5, 0.6], [0.3, 0.2]),
        ("0001", [0.9, 0.8], [0.9, 0.8]),
        ("0002", [], []),
    ):
        trial = search / "trials" / name
        trial.mkdir(parents=True)
        record = {"name": name, "parameters": {}, "raw": {}, "state": "running"}
        write_file(trial / "trial.json", sealed(record))
        rounds = [
            {"split": "validation", "feature": "y", "metric": "loss", "seconds": 1.0}
            | {"evaluation": at + 1, "best": min(losses[: at + 1]), "best_evaluation": at + 1}
            | {"metrics": {"validation": {"y": {"accuracy": accuracy, "loss": losses[at]}}}}
            for at, accuracy in enumerate(accuracies)
        ]
        lines = [sealed(each, line=True) for each in rounds]
        (trial / "training_log.jsonl").write_bytes(b"".join(lines))
    shown: dict[str, list[Any]] = {}
    for known in (False, True):
        if known:
            write_file(search / "search.json", sealed({"config": {"hyperopt": section}}))
        assert main(["runs", str(tmp_path), "--json"]) == 0
        shown = {
            Path(each["name"]).name: [
                each["watched"]["metric"],
                each["best"],
                each["best_evaluation"],
            ]
            for each in json.loads(capsys.readouterr().out)
        }
        if not known:
            assert list(shown) == ["0000", "0001", "0002"]
    assert list(shown.items()) == [
        ("0001", ["accuracy", 0.9, 1]),
        ("0000", ["accuracy", 0.6, 2]),
        ("0002", ["accuracy", None, None]),
    ]
    assert main(["runs", str(tmp_path)]) == 0
    assert "validation y accuracy" in capsys.readouterr().out
    (tmp_path / "link").symlink_to(search / "trials" / "0000")
    for inside, place, names, paths in (
        (search / "trials", ".", ["0001", "0000", "0002"], ["0001", "0000", "0002"]),
        (search / "trials" / "0001", ".", ["0001"], ["."]),
        (search / "trials", "0000", ["0000"], ["0000"]),
        (tmp_path, "link", ["0000"], ["link"]),
        (
            search / "trials" / "0002",
            "..",
            ["0001", "0000", "0002"],
            ["../0001", "../0000", "../0002"],
        ),
    ):
        monkeypatch.chdir(inside)
        with locked(search / ".lock"):
            found = find_runs(place)
        assert [(run.name, run.place) for run in found] == [*zip(names, paths, strict=True)]
        assert all(run.objective is not None and run.state == "running" for run in found)


def test_what_another_user_keeps_closed_hides_no_other_run(
    folder: Path, public_folder: Path, as_another_user, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("closed", "open", "part"):
        shutil.copytree(folder / "results" / "experiment_second", public_folder / name)
    (public_folder / "closed").chmod(0o700)
    (public_folder / "part" / "description.json").chmod(0o600)
    assert [each.name for each in find_runs(public_folder)] == ["closed", "open", "part"]
    found, (closed, part) = as_another_user(
        lambda: [[[each.name, each.state] for each in find_runs(public_folder)], caplog.messages]
    )
    assert found == [["open", "finished"], ["part", "finished"]]
    assert closed == f"{public_folder}/closed may not be read by this user. It is left out."
    assert part.startswith(f"{public_folder}/part/description.json may not be read by this user. ")


@pytest.mark.system
def test_states(folder: Path, tmp_path: Path) -> None:
    """A run that is under way, then stopped; one that failed; one that was killed; and resuming
    makes it finished."""
    words = [sys.executable, "-m", "distcore", "train", "-c", str(folder / "config.yaml")]
    words += ["--dataset", str(folder / "penguins.csv"), "-od", str(tmp_path), "-l", "error"]
    words += ["--set", "trainer.epochs=100000", "--set", "trainer.early_stop=-1"]
    for number, state in ((signal.SIGTERM, "stopped"), (signal.SIGKILL, "stopped")):
        process = subprocess.Popen([*words, "--model_name", number.name])
        run = tmp_path / f"experiment_{number.name}"
        until(lambda: (run / "training_log.jsonl").exists() and any(run.glob("checkpoints/step-*")))  # noqa: B023
        assert state_of(run) == "running"
        os.kill(process.pid, number)
        process.wait(timeout=120)
        assert state_of(run) == state
    run = tmp_path / "experiment_SIGTERM"
    assert (run / "ended.json").exists()
    refused = [each.replace("epochs=100000", "learning_rate=1") for each in words]
    done = subprocess.run(
        [*refused, "--model_resume_path", str(run)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "another run" in done.stderr
    assert state_of(run) == "stopped"
    log = find_runs(run)[0].log
    enough = [each.replace("epochs=100000", f"epochs={len(log) + 2}") for each in words]
    subprocess.run([*enough, "--model_resume_path", str(run)], check=True, timeout=300)
    (found,) = find_runs(run)
    assert (found.state, len(found.log)) == ("finished", len(log) + 2)
    assert found.seconds is not None
    assert not (run / "ended.json").exists()


def test_features_in_another_order_do_not_hide_that_scores_are_of_other_rows() -> None:
    """Other features do: the digest of a frame is of the columns that a run reads."""
    runs = [Run(name="", place="", state="finished", data=data) for data in ("one", "other")]
    for what, told in (
        ("input_features (their order)", 1),
        ("input_features.age.type", 0),
        ("trainer.epochs", 1),
    ):
        assert len([*rows_differ(runs, [(what, "a", "b")])]) == told


@pytest.mark.parametrize(
    ("preprocessing", "changed", "data", "told"),
    [
        ({"split": {"type": "stratify", "column": "y"}}, {"random_seed": 2}, "d", True),
        ({}, {"random_seed": 2}, "d", True),
        ({"split": {"type": "hash", "column": "y"}}, {"random_seed": 2}, "d", False),
        ({}, {"preprocessing": {"split": {"type": "fixed", "column": "s"}}}, "d", True),
        ({}, {"preprocessing": {"sample_ratio": 0.5}}, "train:d", True),
        ({"split": {"type": "a_plugins"}}, {"random_seed": 2}, "d", False),
        ({}, {"random_seed": 2}, "train:d", False),
        ({"sample_ratio": 0.5}, {"random_seed": 2}, "train:d+test:e", True),
        ({"split": {"type": "stratify", "column": "y"}}, {"trainer": {"epochs": 3}}, "d", False),
    ],
)
def test_splits_of_one_size_may_have_other_rows(preprocessing, changed, data, told) -> None:
    """Drawn by another seed, or by other options; of given sets and other splits a seed draws
    none."""
    config = {"preprocessing": preprocessing, "random_seed": 1, "trainer": {"epochs": 2}}
    rows = {"train": 105, "validation": 15, "test": 30}
    runs = [
        Run(name="", place="", state="finished", config=each, rows=rows, data=data)
        for each in (config, {**config, **changed})
    ]
    assert len([*rows_differ(runs, differences(runs))]) == told


def test_a_run_without_its_description_raises_no_doubt() -> None:
    """Each of its options, the seed too, was said to differ."""
    config = {"random_seed": 1, "preprocessing": {"split": {"type": "random"}}}
    config["output_features"] = [{"name": "y", "type": "number", "loss": {"type": "huber"}}]

    def told(*configs: dict[str, object]) -> int:
        runs = [Run(name="", place="", state="finished", config=each) for each in configs]
        return len(in_doubt(runs, differences(runs)))

    assert told(config, {}) == 0
    assert told(config, {}, {**config, "random_seed": 2}) == 1


def test_given_sets_are_known_by_their_digest(folder: Path, tmp_path: Path) -> None:
    data = folder / "penguins.csv"
    config = override(document_of(folder / "config.yaml"), ["trainer.epochs=1"])
    for seed in (1, 2):
        distcore.train(
            config,
            training_set=data,
            validation_set=data,
            output_directory=tmp_path,
            model_name=str(seed),
            random_seed=seed,
        )
    runs = several([str(tmp_path)])
    assert not [*rows_differ(runs, differences(runs))]


def test_a_finished_run_that_was_killed_while_it_was_gone_on_with_is_stopped(
    folder: Path, tmp_path: Path
) -> None:
    """Or killed before its results were whole. Scores of the test split are of the model before."""
    run = shutil.copytree(folder / "results/experiment_second", tmp_path / "run")
    assert state_of(run) == "finished"
    assert find_runs(run)[0].test
    log, receipt = run / "training_log.jsonl", run / "receipt.json"
    one_more = sealed(find_runs(run)[0].last, line=True)
    whole = log.read_bytes()
    log.write_bytes(whole + one_more)
    assert state_of(run) == "stopped"
    assert not find_runs(run)[0].test
    log.write_bytes(whole)
    assert state_of(run) == "finished"
    said = unsealed(receipt.read_bytes())
    del said["files"]
    receipt.write_bytes(sealed(said))
    assert state_of(run) == "stopped"


def test_a_run_that_ends_while_it_is_looked_at_is_finished(folder: Path, tmp_path: Path) -> None:
    run = shutil.copytree(folder / "results/experiment_second", tmp_path / "run")
    ended = run / "ended.json"
    write_file(ended, sealed({"state": "stopped", "error": "by ctrl-C"}))

    def ends(_: Path) -> bool:
        ended.unlink()
        return False

    assert read_run(run, tmp_path, ends).state == "finished"


@pytest.mark.parametrize("question", ["os.access", "distcore_report.runs.is_run"])
def test_a_folder_that_goes_while_it_is_looked_at_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any, question: str
) -> None:
    """That of a run which is refused."""
    (tmp_path / "experiment_run").mkdir()

    def gone(folder: Path, *_: Any) -> bool:
        if folder.name == "experiment_run":
            folder.rmdir()
            return False
        return question == "os.access"

    monkeypatch.setattr(question, gone)
    assert find_runs(tmp_path) == []
    assert not caplog.messages


def test_a_trial_that_ends_while_it_is_looked_at_is_finished(tmp_path: Path) -> None:
    trial = tmp_path / "search/trials/0000"
    trial.mkdir(parents=True)
    write_file(trial / "trial.json", sealed({"state": "running"}))

    def ends(_: Path) -> bool:
        write_file(trial / "trial.json", sealed({"state": "finished"}))
        return False

    assert read_run(trial, tmp_path, ends).state == "finished"


@pytest.mark.parametrize("kind", [DistcoreError, RecursionError])
def test_a_run_that_failed_says_why(folder: Path, tmp_path: Path, kind: type[Exception]) -> None:
    """And where, if nobody expected it."""

    def fail(*_: object) -> None:
        raise kind("the disk went away")

    with pytest.MonkeyPatch.context() as patch:
        # What cannot be had here on demand: an error between two checkpoints.
        patch.setattr("distcore.workflow.results.refuse_without_scores", fail)
        with pytest.raises(kind):
            distcore.train(
                folder / "config.yaml", folder / "penguins.csv", output_directory=tmp_path
            )
    (run,) = find_runs(tmp_path)
    assert (run.state, run.error) == ("failed", "the disk went away")
    frames = json.loads((Path(run.place) / "ended.json").read_text()).get("frames", [])
    assert any("in fail" in each for each in frames) is (kind is RecursionError)


def state_of(run: Path) -> str:
    return find_runs(run)[0].state


def until(condition) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_one_run_is_not_compared(folder: Path) -> None:
    with pytest.raises(UserError, match="one run, and two or more are compared"):
        several([str(folder / "results" / "experiment_first")])


def test_each_of_many_runs_is_looked_for_once(tmp_path: Path, monkeypatch) -> None:
    places = [str(tmp_path / "one" / f"run_{number}") for number in range(60)]
    places.append(str(tmp_path / "other" / "run_0"))
    found = [Run(name="", place=place, state="finished") for place in places]
    looked: list[str] = []
    resolve = os.path.realpath
    monkeypatch.setattr("distcore_report.compare.find_runs", lambda *_: found)
    monkeypatch.setattr(os.path, "realpath", lambda path: looked.append(path) or resolve(path))
    names = [run.name for run in several([str(tmp_path)])]
    assert names == [places[0], *(f"run_{number}" for number in range(1, 60)), places[-1]]
    assert looked == places


def test_logs_of_many_runs_are_not_in_memory_together(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,600 runs of 100 rounds took 690 MB."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ended.json").write_bytes(sealed({"state": "stopped"}))
    read: list[Path] = []
    known: list[int] = []
    monkeypatch.setattr(
        "distcore_report.runs.read_run",
        lambda each, *rest: read.append(each) or read_run(each, *rest),
    )
    monkeypatch.setattr(
        "distcore_report.runs_command.row", lambda run: known.append(len(read)) or row(run)
    )
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("stopped") == 3
    assert known == [1, 2, 3]


def test_the_time_of_a_resumed_run_is_that_of_all_its_starts() -> None:
    assert (
        trained_seconds([{"seconds": 1.0}, {"seconds": 3.0}, {"seconds": 0.5}, {"seconds": 2.0}])
        == 5.0
    )


def test_starts_of_one_long_epoch_each_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was seen only where it took less time than the one before: 1 h of 3. The folder said
    that it was begun when its last start ended."""
    clock = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000 + clock)
    (tmp_path / "description.json").write_bytes(sealed({"config": {}}))
    # The rounds of each command. In the last, workers are started again after the first round.
    for told in ([3600.0], [3610.0, 7200.0], [3620.0, 3630.0]):
        progress, before = Progress(), 0.0
        with training_log(progress, tmp_path):
            for seconds in told:
                again = told[0] == 3620.0
                clock += 5.0 + seconds if again else seconds - before
                before = seconds
                progress.tell(a_round(1, 0.5, 0.5, 1, step=round(clock), seconds=seconds))
    run = read_run(tmp_path, tmp_path, lambda _: False)
    assert [each["seconds"] for each in run.log] == [3600.0, 3610.0, 7200.0, 3620.0, 3630.0]
    assert run.seconds == 3600.0 + 7200.0 + 3620.0 + 3630.0
    assert run.begun == 1_700_000_000 + 1000.0


def test_a_run_that_was_gone_on_with_by_a_newer_version_is_begun_when_its_files_say(
    tmp_path: Path,
) -> None:
    rounds: list[dict[str, Any]] = [
        {"seconds": 9.0},
        {"seconds": 10.0, "begun": 2e9},
        {"seconds": 11.0, "begun": 2e9},
    ]
    lines = [sealed(each, line=True) for each in rounds]
    (tmp_path / "training_log.jsonl").write_bytes(b"".join(lines))
    description = tmp_path / "description.json"
    description.write_bytes(sealed({"config": {}}))
    for modified, begun in ((1e9, 1e9), (3e9, 2e9)):  # it is written anew at the end
        os.utime(tmp_path / "training_log.jsonl", (3e9, 3e9))
        os.utime(description, (modified, modified))
        run = read_run(tmp_path, tmp_path, lambda _: False)
        assert (run.begun, run.seconds) == (begun, 20.0)


def test_nearly_faultless_is_not_shown_as_faultless() -> None:
    assert [*map(shown, (None, 0.99996, 1.0))] == ["-", "0.99996", "1"]


def test_a_curve_in_characters() -> None:
    assert sparks({1: 0.0, 2: None, 3: 1.0}, [1, 2, 3], [0.0, 1.0]) == "▁ █"
    assert len(sparks(dict.fromkeys(range(1000), 1.0), range(1000), [1.0])) == 40


def run_of(name: str, losses: dict[int, float | None], **more: Any) -> Run:
    """One with this loss by evaluation; the last one is of the round `scored`, if that is given."""
    told = {"split": "s", "feature": "y", "metric": "loss"}
    log = [
        {**told, "evaluation": at, "metrics": {"s": {"y": {"loss": loss}}}}
        for at, loss in losses.items()
    ]
    if log:
        log[-1] |= more
    return Run(name, "", "", "finished", log=log)


def lines_of(*runs: Run) -> list[str]:
    return [*in_words(runs)][-1].splitlines()


def test_a_character_is_the_same_evaluations_of_every_run() -> None:
    """40 and 80 evaluations had 40 characters each."""
    falling = {at: 80.0 - at for at in range(80)}
    short, long = lines_of(run_of("a", dict([*falling.items()][:40])), run_of("b", falling))[1:]
    assert len(short.split()[1]) == 20
    assert len(long.split()[1]) == 40
    assert long.split()[1].startswith(short.split()[1])


def test_a_forest_that_is_scored_seldom_is_a_line() -> None:
    """It was single characters between blanks."""
    often = run_of("a", dict.fromkeys(range(1, 10), 4.0) | {1: 1.0}, unit="round")
    seldom = run_of("b", {2: 1.0, 4: 4.0, 6: None, 7: 4.0}, unit="round")
    assert lines_of(often, seldom)[1:] == ["a  ▁████████", "b   ▁▁██ █"]


def test_curves_of_runs_with_wide_names_stand_in_line() -> None:
    runs = [run_of("年齢", {1: 1.0}), run_of("bbbb", {1: 1.0}), run_of("a", {1: 1.0})]
    assert lines_of(*runs)[1:] == ["年齢  ▁", "bbbb  ▁", "a     ▁"]
    many = [run_of(f"年齢年齢年齢年齢年齢{at}", {1: 1.0}) for at in range(7)]
    _, *told = in_words(many)
    assert max(map(width_of, "\n".join(told).splitlines())) <= WIDE


def test_no_peak_is_passed_over() -> None:
    """Every second of more than 40 values was dropped."""
    losses = {at: 9.0 if at == 30 else 0.1 for at in range(1, 81)}
    assert "█" in lines_of(run_of("a", losses), run_of("b", {1: 0.1}))[1]


def test_rounds_of_forests_are_compared_by_their_numbers() -> None:
    """Of another period each; the last scores are of the round that is kept."""
    unit = {"unit": "round"}
    often = run_of("a", {1: 4.0, 2: 3.0, 3: 2.0, 4: 1.0}, **unit)
    seldom = run_of("b", {2: 3.0, 4: 4.0, 5: 2.0}, **unit, scored=3)
    assert lines_of(often, seldom) == ["s y loss by round, from 1 to 4", "a  █▆▃▁", "b   ▆▃█"]
    page = "".join(on_a_page([often, seldom]))
    assert "b: 2 at 3<" in page
    assert ">round</text>" in page
    other = run_of("c", {1: 1.0})
    assert lines_of(often, other)[0] == "s y loss by evaluation, from 1 to 4"
    assert lines_of(often, run_of("d", {}))[0] == "s y loss by round, from 1 to 4"


def test_the_best_round_of_a_trial_is_counted_as_its_curve_is() -> None:
    """The last scores of a forest are of the round that is kept, whenever they were told."""
    run = run_of("a", {2: 3.0, 4: 4.0, 5: 1.0}, unit="round", scored=3)
    run = replace(run, objective=Objective("y", "loss", "minimize", "s"))
    assert (run.best, run.best_evaluation) == (1.0, 3)
    assert run.curve("s", "y", "loss")[3] == 1.0


def test_a_run_has_its_colour_in_every_chart() -> None:
    runs = [run_of("a", {1: None}), run_of("b", {1: 1.0})]
    page = "".join(on_a_page(runs))
    assert 'style="background:var(--c1)"></i>b' in page
    assert "</i>a" not in page


@pytest.mark.parametrize(("name", "stays"), [("gd.json", True), ("step-00000001.tmp", False)])
def test_a_stopped_run_keeps_checkpoints_that_a_trainer_names_in_its_own_way(
    tmp_path: Path, name: str, stays: bool
) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / name).write_text("{}")
    session: Any = SimpleNamespace(directory=run, mirror=None, whole=False)
    with pytest.raises(KeyboardInterrupt), gone_if_refused(session):
        raise KeyboardInterrupt
    assert run.exists() == stays
