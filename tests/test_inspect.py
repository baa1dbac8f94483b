"""The commands that look, through the command line: init, schema, report (plan, plugins, doctor:
their own files)."""

import json
import re

import jsonschema
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import distcore
from distcore.cli.main import main
from distcore.config import load_config
from distcore_data.table import table
from distcore_testing import data


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder, form, rows=200):
    """The tiny table as a file."""
    found, path = data.table(rows), folder / f"data.{form}"
    if form in ("csv", "csv.gz"):
        with pa.output_stream(path) as sink:
            pa.csv.write_csv(found, sink)
    elif form == "parquet":
        pa.parquet.write_table(found, path)
    elif form == "feather":
        pa.feather.write_feather(found, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in found.to_pylist()))
    return path


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet", "feather", "jsonl"])
def test_init_looks_at_any_format_and_finds_the_same(folder, form, capsys):
    assert main(["init", "--dataset", str(written(folder, form)), "--target", "y"]) == 0
    text = capsys.readouterr().out
    config = load_config(text)
    types = {each.name: each.type for each in config.input_features}
    expected = {
        "x0": "number",
        "x1": "number",
        "colour": "category",
        "words": "text",
        "k": "category",
        "z": "number",
    }
    assert {name: types.get(name) for name in expected} == expected
    assert [(each.name, each.type) for each in config.output_features] == [("y", "binary")]
    assert "# Written by `distcore init`" in text


def test_what_init_writes_trains(folder, capsys):
    path = written(folder, "parquet", 600)
    assert (
        main(
            [
                "init",
                "--dataset",
                str(path),
                "--target",
                "y",
                "--target",
                "z",
                "--output",
                "config.yaml",
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert f"distcore experiment --config config.yaml --dataset {path}" in said
    config = folder / "config.yaml"
    config.write_text(re.sub(r"epochs: \d+", "epochs: 2", config.read_text()))
    assert (
        main(["experiment", "--config", "config.yaml", "--dataset", str(path), "-l", "error"]) == 0
    )
    scores = json.loads(
        (folder / "results" / "experiment_run" / "test_statistics.json").read_text()
    )
    assert {"y", "z"} <= set(scores)


def test_init_looks_at_sets_that_are_split_already(folder, capsys):
    train, test = written(folder, "parquet"), folder / "test.csv"
    pa.csv.write_csv(data.table(50, seed=1).drop_columns("k"), test)
    words = ["--training_set", str(train), "--test_set", str(test), "--target", "y"]
    assert main(["init", *words, "--output", "config.yaml"]) == 0
    assert (
        f"--config config.yaml --training_set {train} --test_set {test}" in capsys.readouterr().out
    )
    text = (folder / "config.yaml").read_text()
    assert "# k is left out: the test set does not have it" in text
    assert load_config("config.yaml").preprocessing.csv.null_values is None
    assert main(["init", *words, "--dataset", str(train)]) == 2
    assert "Both --dataset and --training_set were given" in capsys.readouterr().err
    assert main(["init", "--target", "y"]) == 2
    assert "No data was given" in capsys.readouterr().err


def test_init_knows_of_rows_that_it_does_not_look_at(folder, monkeypatch, capsys):
    monkeypatch.setattr("distcore.cli.inspect.MOST_ROWS", 150)
    assert main(["init", "--dataset", str(written(folder, "parquet")), "--target", "y"]) == 0
    text = capsys.readouterr().out
    assert "from a look at 150 of about 200 rows." in text
    assert "for about 140 rows to train on" in text


def test_init_never_overwrites(folder, capsys):
    (folder / "config.yaml").write_text("mine: true\n")
    path = written(folder, "csv")
    assert main(["init", "--dataset", str(path), "--target", "y", "--output", "config.yaml"]) == 2
    assert "config.yaml exists and was left as it is" in capsys.readouterr().err
    assert (folder / "config.yaml").read_text() == "mine: true\n"
    assert main(["init", "--dataset", "none.csv", "--target", "y", "--output", "config.yaml"]) == 2
    assert "config.yaml exists" in capsys.readouterr().err  # before the data are looked at
    (folder / "link.yaml").symlink_to("gone.yaml")
    assert main(["init", "--dataset", str(path), "--target", "y", "--output", "link.yaml"]) == 2
    assert "link.yaml is a link that leads nowhere and was left" in capsys.readouterr().err
    assert (folder / "link.yaml").is_symlink()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dataset", "none.csv", "--target", "y"], "no such file"),
        (["--dataset", "data.csv", "--target", "yy"], "Did you mean 'y'?"),
        (["--dataset", "data.csv", "--target", "words"], "cannot be a target"),
        (
            ["--dataset", "data.csv", "--target", "y", "--data_format", "xml"],
            "Unknown data format 'xml'",
        ),
        (["--dataset", "data.csv", "--target", "y", "--output", "nowhere/config.yaml"], "nowhere"),
        (
            ["--dataset", "data.csv", "--target", "y", "--output", "a" * 300],
            "cannot be written: File name too long. Give another file with --output.",
        ),
    ],
)
def test_init_tells_what_is_wrong_and_leaves_nothing(folder, words, said, capsys):
    written(folder, "csv")
    assert main(["init", *words]) == 2
    assert said in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["data.csv"]


def test_schema_is_a_schema_and_a_config_fits_it(folder, capsys):
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(data.config("cache"), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**data.config("cache"), "trainer": {"epoch": 3}}, schema)
    assert main(["schema", "--output", "schema.json"]) == 0
    assert json.loads((folder / "schema.json").read_text()) == schema
    assert main(["schema", "--output", "nowhere/schema.json"]) == 2


@pytest.mark.parametrize("words", [["schema"], ["plugins", "lock"]])
def test_what_is_written_takes_the_place_of_its_own_kind_alone(folder, words, capsys):
    """`--output` with the name of the config, or of the dataset, must not cost it."""
    for name in ("config.yaml", "data.csv", "other.json"):
        (folder / name).write_text('{\n  "$schema": "https://example.org/mine"}')
        before = (folder / name).read_bytes()
        assert main([*words, "--output", name]) == 2
        assert f"{name} exists, is nothing that this command wrote" in capsys.readouterr().err
        assert (folder / name).read_bytes() == before
    (folder / "made.json").touch()  # which has nothing to lose
    for _ in range(2):
        assert main([*words, "--output", "made.json"]) == 0
    json.loads((folder / "made.json").read_text())


def test_report_is_made_again_from_the_files(folder, capsys):
    outcome = distcore.experiment(
        data.config(str(folder / "cache")), data.table(), output_directory=folder / "results"
    )
    first = (outcome.directory / "report.html").read_text()
    (outcome.directory / "report.html").unlink()
    assert main(["report", str(outcome.directory)]) == 0
    assert capsys.readouterr().out.strip() == str(outcome.directory / "report.html")
    assert (outcome.directory / "report.html").read_text() == first
    assert main(["report", str(outcome.directory), "--output", "mine.html"]) == 0
    assert (folder / "mine.html").read_text() == first
    assert main(["report", str(outcome.directory), "--output", "nowhere/mine.html"]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_report_of_a_folder_that_is_none(folder, capsys):
    (folder / "empty").mkdir()
    for name in ("empty", "missing"):
        assert main(["report", name]) == 2
        assert name in capsys.readouterr().err
    assert not list((folder / "empty").iterdir())


def test_tables_are_aligned():
    assert table([("A", "LONGER"), ("wide cell", 1)]) == "A          LONGER\nwide cell  1"
    names = ", ".join(["exponential"] * 6)  # more than a line of a column
    lines = table([("A", "B"), (names, 1), ("b", names)]).split("\n")
    begun, rest = "exponential, " * 3 + "exponential,", "exponential, exponential"
    pad = " " * len(begun)
    assert lines == [f"A{pad[1:]}  B", f"{begun}  1", rest, f"b{pad[1:]}  {names}"]
