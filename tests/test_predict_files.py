"""Where `distcore predict` writes: CSV or Parquet by the ending, keys beside the predictions,
nothing overwritten."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv as pa_csv

import distcore
from distcore.cli.main import main
from distcore_core.errors import UserError

PENGUINS = Path(__file__).parent.parent / "examples" / "penguins"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a model of one epoch."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copy(PENGUINS / "penguins.csv", folder)
    config = folder / "config.yaml"
    config.write_text((PENGUINS / "config.yaml").read_text().replace("epochs: 40", "epochs: 1"))
    distcore.train(config, dataset=folder / "penguins.csv", output_directory=folder)
    return folder


def predict(trained: Path, *words: str) -> int:
    model, data = str(trained / "experiment_run"), str(trained / "penguins.csv")
    return main(["predict", "-m", model, "--dataset", data, *words])


def test_csv_with_keys(trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "found.csv"
    assert (
        predict(trained, "--output_file", str(path), "--keep", "island", "-k", "body_mass_g") == 0
    )
    with path.open() as file:
        rows = list(csv.DictReader(file))
    with (trained / "penguins.csv").open() as file:
        given = list(csv.DictReader(file))
    assert list(rows[0])[:3] == ["island", "body_mass_g", "species_predictions"]
    assert [row["island"] for row in rows] == [row["island"] for row in given]
    table = distcore.load(trained / "experiment_run").predict(trained / "penguins.csv")
    assert [row["species_predictions"] for row in rows] == table["species_predictions"].to_pylist()


def test_a_list_in_a_column_of_csv_is_json(tmp_path: Path) -> None:
    from distcore_torch.prediction_files import write_predictions

    batch = pa.record_batch({"found": [["a", "b"], None], "p": [0.5, 0.25]})
    write_predictions(tmp_path / "x.csv", [batch], batch.schema)
    with (tmp_path / "x.csv").open() as file:
        assert [row["found"] for row in csv.DictReader(file)] == ['["a", "b"]', ""]


def test_whole_numbers_of_a_frame_stay_whole_numbers(trained: Path, tmp_path: Path) -> None:
    table = pa_csv.read_csv(trained / "penguins.csv")
    ids = pa.array([2**60 + number for number in range(table.num_rows)])
    path = distcore.predict(
        trained / "experiment_run",
        table.append_column("id", ids),
        output_file=tmp_path / "x.parquet",
        keep=["id"],
    )
    assert pq.read_table(path)["id"].combine_chunks().equals(ids)


def test_nothing_is_overwritten(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "predictions.parquet"
    path.write_bytes(b"mine")
    assert predict(trained, "--output_directory", str(tmp_path)) == 2
    assert path.read_bytes() == b"mine"
    assert f"{path} exists and was left as it is." in capsys.readouterr().err
    assert predict(trained, "--output_directory", str(tmp_path), "--overwrite") == 0
    assert pq.read_table(path).num_rows == 344


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--output_file", "found.txt"), "name a file that ends in .csv or .parquet"),
        (("--keep", "islnd"), "there is no column 'islnd' (did you mean 'island'?)"),
        (("--keep", "species_predictions"), "the predictions have a column of that name"),
    ],
)
def test_what_cannot_be(
    trained: Path,
    tmp_path: Path,
    words: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert predict(trained, "--output_directory", str(tmp_path / "out"), *words) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_from_python(trained: Path, tmp_path: Path) -> None:
    arguments = {"output_file": tmp_path / "x.csv"}
    distcore.predict(trained / "experiment_run", trained / "penguins.csv", **arguments)
    with pytest.raises(UserError, match="--overwrite"):
        distcore.predict(trained / "experiment_run", trained / "penguins.csv", **arguments)
