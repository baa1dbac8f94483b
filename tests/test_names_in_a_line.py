"""A line end or a tab in a column's name breaks no line of what is printed; files for machines have
the name itself."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest
import yaml

import distcore
from distcore.cli.main import main
from distcore.workflow.progress_text import round_line
from distcore_core.errors import ConfigError, DataError, UserError
from distcore_core.progress import Round
from distcore_data.table import table, width_of

NAMES = ["si\nze", "ki\tnd", "y\r\nes", "z\u2028"]
SHOWN = [r"si\nze", r"ki\tnd", r"y\r\nes", r"z\u2028"]


def test_columns_of_wide_characters_stand_in_line() -> None:
    """Each of them has two columns of a terminal, an accent of its own none."""
    lines = table([("NAME", "N"), ("年齢", "1"), ("e\u0301te", "2"), ("age", "3")]).splitlines()
    assert lines == ["NAME  N", "年齢  1", "e\u0301te   2", "age   3"]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        *[("abc", 3), ("年齢", 4), ("e\u0301te", 3), ("\u1112\u1161\u11ab", 2)],
        *[("ก\u0e31", 1), ("a\u200db", 2), ("\u0391", 1)],
    ],
)
def test_the_width_of_a_text_is_that_in_a_terminal(text: str, columns: int) -> None:
    assert width_of(text) == columns


def test_a_cell_of_wide_characters_goes_on_in_the_next_line() -> None:
    lines = table([("A", "B"), ("한국어 " * 20, "x"), ("long " * 14, "y")]).splitlines()
    assert lines[1] == " ".join(["한국어"] * 8) + " " * 6 + "x"
    assert lines[2].split() == ["한국어"] * 8
    assert lines[4] == " ".join(["long"] * 12) + "  y"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, a config that init wrote, and two runs."""
    folder, dice = tmp_path_factory.mktemp("names"), random.Random(3)
    with (folder / "data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(NAMES)
        for _ in range(200):
            row = [dice.random(), dice.choice("pqr"), dice.choice(["yes", "no"]), dice.random()]
            writer.writerow(row)
    words = ["--dataset", str(folder / "data.csv"), "--output", str(folder / "config.yaml")]
    assert main(["init", *words, "--target", NAMES[2], "--target", NAMES[3]]) == 0
    for rate in (0.001, 0.01):
        config = yaml.safe_load((folder / "config.yaml").read_text())
        config["trainer"] |= {"epochs": 2, "learning_rate": rate}
        distcore.experiment(
            config, folder / "data.csv", output_directory=folder, experiment_name=f"at_{rate}"
        )
    return folder


def lines_with(said: str, shown: str) -> list[str]:
    found = [line for line in said.splitlines() if shown in line]
    assert found, said
    return found


def test_a_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--config", str(folder / "config.yaml"), "--dataset", str(folder / "data.csv")]
    assert main(["plan", *words]) == 0
    said = capsys.readouterr().out
    [reads] = [line for line in said.splitlines() if line.startswith("reads ")]
    assert reads.endswith(f"4 columns: {', '.join(SHOWN)}")
    assert "\t" not in said


def test_scores_and_rounds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model_path", str(folder / "at_0.001_run"), "--dataset", str(folder / "data.csv")]
    place = ["--output_directory", str(folder / "evaluated")]
    assert main(["evaluate", *words, *place]) == 0
    said = capsys.readouterr().out
    for shown, metric in ((SHOWN[2], "accuracy"), (SHOWN[3], "loss")):
        assert [line for line in lines_with(said, shown) if line.split()[:2] == [shown, metric]]
    metrics = {"validation": {"a\nb": {"loss": 0.5}, "c": {"loss": 0.25}}}
    found = Round(
        evaluation=1,
        epoch=1,
        epochs=2,
        step=10,
        metrics=metrics,
        split="validation",
        feature="a\nb",
        metric="loss",
        value=0.5,
        best=0.5,
        best_evaluation=1,
        patience_left=None,
        seconds=1.0,
    )
    assert r"validation a\nb loss 0.5" in round_line(found)
    assert "\n" not in round_line(found)


def test_runs_that_are_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(folder / "at_0.001_run"), str(folder / "at_0.01_run")]
    assert main(["compare", *runs, "--output", str(folder / "comparison.html")]) == 0
    said = capsys.readouterr().out
    assert len(lines_with(said, rf"test {SHOWN[2]} accuracy")) == 1
    assert "\nes" not in said
    assert "\u2028" not in said


def test_tables_keep_their_lines() -> None:
    rows = [("NAME", "WHY"), ("a\nb", "c\td"), ("x" * 70 + "\n" + "y", "z\r")]
    assert table(rows).splitlines()[1].split() == [r"a\nb", r"c\td"]
    assert len(table(rows).splitlines()) == 3


def test_messages(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--dataset", str(folder / "data.csv"), "--target", "yes"]
    assert main(["init", *words]) == 2
    assert f"Columns: {', '.join(SHOWN)}." in capsys.readouterr().err
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["trainer"]["validation_field"] = "yes"
    with pytest.raises(ConfigError) as mistake:
        distcore.plan(config, folder / "data.csv")
    assert f"there are: {SHOWN[2]}, {SHOWN[3]}, or combined" in str(mistake.value)
    model = folder / "at_0.001_run"
    assert f"predicts {SHOWN[2]}, {SHOWN[3]}>" in repr(distcore.load(model))
    name = f"{NAMES[2]}_predictions"
    with pytest.raises((UserError, DataError)) as refused:
        distcore.predict(model, folder / "data.csv", output_file=folder / "x.csv", keep=[name])
    assert rf"--keep {SHOWN[2]}_predictions: " in str(refused.value)


def test_a_csv_of_predictions_has_the_names_themselves(folder: Path) -> None:
    path = folder / "predictions.csv"
    distcore.predict(folder / "at_0.001_run", folder / "data.csv", output_file=path, keep=NAMES[:2])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 200
    assert list(rows[0])[:3] == [*NAMES[:2], f"{NAMES[2]}_predictions"]
