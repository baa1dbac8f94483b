"""In a notebook: progress in one place, results that show themselves, errors of a line; with ipywidgets and without."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

PENGUINS = Path(__file__).parent.parent / "examples" / "penguins"

WITHOUT_WIDGETS = "import sys; sys.modules['ipywidgets'] = None"
TRAIN = """
import distcore
outcome = distcore.experiment("config.yaml", dataset="penguins.csv")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("config.yaml", "penguins.csv"):
        shutil.copy(PENGUINS / name, tmp_path / name)
    return tmp_path


def run(folder: Path, *cells: str, errors: bool = False) -> list[list[Any]]:
    """The outputs of each cell."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    options = {"timeout": 300, "kernel_name": "python3", "allow_errors": errors}
    nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}, **options).execute()
    return [each["outputs"] for each in notebook["cells"]]


@pytest.mark.parametrize("first", ["pass", WITHOUT_WIDGETS], ids=["with ipywidgets", "without ipywidgets"])
def test_progress_is_one_text_and_no_warning(folder: Path, first: str) -> None:
    (_, outputs) = run(folder, first, TRAIN)
    assert [each["output_type"] for each in outputs] == ["display_data"]
    text = outputs[0]["data"]["text/plain"]
    lines = text.splitlines()
    assert any(line.startswith("train ") and " 100%" not in line for line in lines)
    assert any(line.startswith("epoch ") and "validation loss" in line for line in lines)
    assert lines[-1].startswith("stopped early at evaluation")
