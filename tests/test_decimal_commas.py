"""`preprocessing.csv.decimal` from `init` to `predict`: a file with decimal commas gives the bytes of
the same file with points."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import distcore
from distcore.cli.main import main
from distcore.config import load_config
from distcore.config.guess import guess

CONFIG = """\
input_features:
  - {name: width, type: number, preprocessing: {normalization: zscore}}
  - {name: kind, type: category}
  - {name: note, type: text, encoder: {type: embed, embedding_size: 4}}
output_features: [{name: length, type: number}]
trainer: {epochs: 1, batch_size: 32}
"""
WITH_COMMAS = CONFIG + 'preprocessing: {csv: {decimal: ","}}\n'
ROWS = 200


def rows(decimal: str, header: bool = True) -> str:
    dice = random.Random(3)
    lines = ["width;kind;note;length"] if header else []
    for _ in range(ROWS):
        width = dice.random() * 100
        numbers = [f"{width:.7g}", f"{3 * width + 1:.4f}"]
        width_text, length = (each.replace(".", decimal) for each in numbers)
        lines.append(f"{width_text};{dice.choice('ab')} 1,5;it is 2.5 or 3,5;{length}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both files, and what was trained on each."""
    folder = tmp_path_factory.mktemp("commas")
    for name, decimal, config in (("points", ".", CONFIG), ("commas", ",", WITH_COMMAS)):
        (folder / f"{name}.csv").write_text(rows(decimal))
        (folder / f"{name}.yaml").write_text(config)
        distcore.experiment(
            folder / f"{name}.yaml", dataset=folder / f"{name}.csv", output_directory=folder / name
        )
    return folder


def test_weights_and_scores_are_those_of_the_file_with_points(folder: Path) -> None:
    for name in ("model/weights.safetensors", "test_statistics.json"):
        each = [next((folder / kind).rglob(name)).read_bytes() for kind in ("points", "commas")]
        assert each[0] == each[1]


def test_shards_are_the_same_bytes_and_keys_are_others(folder: Path) -> None:
    shards: dict[str, set[bytes]] = {}
    for path in (folder / ".distcore_cache").rglob("*.parquet"):
        shards.setdefault(f"{path.parent.name}/{path.name}", set()).add(path.read_bytes())
    assert {name: len(each) for name, each in shards.items()} == dict.fromkeys(shards, 1)
    keys = {path.name for path in (folder / ".distcore_cache").iterdir() if path.is_dir()}
    assert len(keys) == 2


def test_predict_and_evaluate_read_as_the_training_did(folder: Path, tmp_path: Path) -> None:
    found = []
    for kind in ("points", "commas"):
        model = folder / kind / "experiment_run"
        path = tmp_path / f"{kind}.csv"
        words = ["-m", str(model), "--dataset", str(folder / f"{kind}.csv")]
        assert main(["predict", *words, "--output_file", str(path)]) == 0
        scores = distcore.evaluate(
            model, dataset=folder / f"{kind}.csv", output_directory=tmp_path / kind
        )
        found.append((path.read_bytes(), scores))
    assert found[0] == found[1]


def test_a_file_with_points_is_no_longer_read_by_such_a_model(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-m", str(folder / "commas" / "experiment_run")]
    assert main(["predict", *words, "--dataset", str(folder / "points.csv")]) == 2
    said = capsys.readouterr().err
    assert "points.csv, line 2, column 'width'" in said
    assert "preprocessing.csv.decimal" in said


def test_one_character_for_two_things_is_an_error_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(
        CONFIG + 'preprocessing:\n  csv:\n    delimiter: ","\n    decimal: ","\n'
    )
    (tmp_path / "data.csv").write_text(rows(","))
    words = ["--config", str(tmp_path / "c.yaml"), "--dataset", str(tmp_path / "data.csv")]
    assert main(["plan", *words]) == 2
    said = capsys.readouterr().err
    assert "line 8: preprocessing.csv: delimiter and decimal are both ','" in said


# ------------------------------------------------------------------ init


def suggested(tmp_path: Path, dataset: Path, target: str = "length") -> str:
    path = tmp_path / "suggested.yaml"
    path.unlink(missing_ok=True)
    words = ["--dataset", str(dataset), "--target", target, "--output", str(path)]
    assert main(["init", *words]) == 0
    return path.read_text()


def test_init_writes_the_option_and_what_it_wrote_is_trained(folder: Path, tmp_path: Path) -> None:
    text = suggested(tmp_path, folder / "commas.csv")
    assert '  csv: {decimal: ","}  # 3,14 is a number\n' in text
    assert text.replace('  csv: {decimal: ","}  # 3,14 is a number\n', "") == suggested(
        tmp_path, folder / "points.csv"
    )
    (tmp_path / "suggested.yaml").write_text(text)
    made = distcore.preprocess(tmp_path / "suggested.yaml", dataset=folder / "commas.csv")
    assert made is not None


def number_types(text: str) -> dict[str, str]:
    return {each.column: each.type for each in load_config(text).input_features}


def table(change: Callable[[int], dict[str, object]]) -> pa.Table:
    dice = random.Random(1)
    return pa.Table.from_pylist(
        [
            {"x": f"{dice.randrange(99)},{row % 97:02}", **change(row), "length": row % 3 + 0.5}
            for row in range(ROWS)
        ]
    )


def test_init_of_texts_in_a_typed_file(tmp_path: Path) -> None:
    """What is a number already has no sign."""
    pq.write_table(table(lambda row: {"typed": row / 7}), tmp_path / "data.parquet")
    text = suggested(tmp_path, tmp_path / "data.parquet")
    assert load_config(text).preprocessing.csv.decimal == ","
    assert number_types(text) == {"x": "number", "typed": "number"}


def test_init_with_spellings_of_missing_values_too(tmp_path: Path) -> None:
    lines = rows(",").splitlines()
    lines[7] = lines[7].replace(lines[7].partition(";")[0], "?", 1)
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    text = suggested(tmp_path, tmp_path / "data.csv")
    csv = load_config(text).preprocessing.csv
    assert csv.decimal == ","
    assert "?" in (csv.null_values or ())
    assert number_types(text)["width"] == "number"


def test_init_takes_no_text_with_a_comma_for_true_or_false(tmp_path: Path) -> None:
    """As pandas writes whole numbers of a column that lacks some: a binary feature reads texts, of
    which `0,0` would be true."""
    body = "".join(f"{row % 7},5;{row % 2},0;{row % 2};{row}\n" for row in range(ROWS))
    (tmp_path / "data.csv").write_text(f"x;half;whole;length\n{body}")
    expected = {"x": "number", "half": "category", "whole": "binary"}
    assert number_types(suggested(tmp_path, tmp_path / "data.csv")) == expected
    (tmp_path / "data.csv").write_text(f"x;half;whole;length\n{body}3,5;?;?;7\n")
    assert number_types(suggested(tmp_path, tmp_path / "data.csv")) == expected
    columns = {"x": [f"{row % 7},5" for row in range(ROWS)], "length": list(range(ROWS))}
    halves = [f"{row % 2},0" for row in range(ROWS)]
    whole = [f"{row % 2}" for row in range(ROWS)]
    texts = pa.table({"half": halves, "whole": whole, **columns})
    pq.write_table(texts, tmp_path / "data.parquet")
    assert number_types(suggested(tmp_path, tmp_path / "data.parquet")) == expected


def test_init_asks_for_no_points_where_it_reads_commas(tmp_path: Path) -> None:
    """A line of totals makes a text of a column; its commas are those that are read."""
    body = "".join(f"{row},25;{row},5;{row}\n" for row in range(ROWS))
    (tmp_path / "data.csv").write_text(f"x;y;length\n{body}Total;1,5;7\n")
    text = suggested(tmp_path, tmp_path / "data.csv")
    assert load_config(text).preprocessing.csv.decimal == ","
    assert "; it holds numbers, and 'Total', which is none" in text


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([f"{row}{',.'[row % 2]}5" for row in range(ROWS)], "decimal points, .* 3.14 as 3,14,"),
        ([f"1.{row + 100},5" for row in range(ROWS)], "points between thousands, .* as 1234,5,"),
        ([f"{row % 90 + 1}.{row + 100}" for row in range(ROWS)], "points between thousands, "),
        ([f"1,{row + 100}.5" for row in range(ROWS)], "commas between thousands, .* as 1234,5,"),
        ([f"{row}%" for row in range(ROWS)], "percent signs, .* 0,12,"),
    ],
)
def test_where_commas_are_read_init_asks_for_commas(texts: list[str], said: str) -> None:
    found = guess("x", pa.chunked_array([texts]), decimal=",")
    assert found.type is None
    assert re.match(f"its numbers have {said}", found.why)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("x;y;length\n{row},5;{row}.5;{row}\n", "another column has points"),
        ("x;y;length\n{row},500;{row}1;{row}\n", "they may stand between thousands"),
        ('x,y,length\n"{row},5",{row}1,{row}\n', "commas separate the fields, too"),
    ],
)
def test_init_leaves_the_option_out(tmp_path: Path, content: str, why: str) -> None:
    header, line, _ = content.split("\n")
    body = "".join(line.format(row=row * 37 % 191 + 1) + "\n" for row in range(ROWS))
    (tmp_path / "data.csv").write_text(f"{header}\n{body}")
    text = suggested(tmp_path, tmp_path / "data.csv")
    assert load_config(text).preprocessing.csv.decimal == ".", why
    assert "x is left out: its numbers have" in text


def test_the_model_says_how_it_reads(folder: Path) -> None:
    [path] = (folder / "commas").rglob("model.json")
    assert json.loads(path.read_text())["preprocessing"]["csv"]["decimal"] == ","
    [path] = (folder / "points").rglob("model.json")
    assert "decimal" not in json.loads(path.read_text())["preprocessing"]["csv"]
