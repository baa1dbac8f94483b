"""In a notebook: progress in one place, results that show themselves, errors of a line; with
ipywidgets and without."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
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
    nbclient.NotebookClient(
        notebook, resources={"metadata": {"path": str(folder)}}, **options
    ).execute()
    return [each["outputs"] for each in notebook["cells"]]


@pytest.mark.system
@pytest.mark.parametrize(
    "first", ["pass", WITHOUT_WIDGETS], ids=["with ipywidgets", "without ipywidgets"]
)
def test_progress_is_one_text_and_no_warning(folder: Path, first: str) -> None:
    (_, outputs) = run(folder, first, TRAIN)
    assert [each["output_type"] for each in outputs] == ["display_data"]
    text = outputs[0]["data"]["text/plain"]
    lines = text.splitlines()
    assert any(line.startswith("train ") and " 100%" not in line for line in lines)
    assert any(line.startswith("epoch ") and "validation loss" in line for line in lines)
    assert lines[-1].startswith("stopped early at evaluation")


SHOWN = """
outcome = distcore.experiment("config.yaml", dataset="penguins.csv", view="none")
outcome
"""


@pytest.mark.system
def test_results_show_themselves(folder: Path) -> None:
    cells = (
        "import distcore",
        SHOWN,
        "outcome.plot()",
        "outcome.plot('confusion')",
        "outcome.plot('importance').spec['mark']",
        "model = distcore.load(outcome.model); model",
        "import pandas; scores = model.evaluate(pandas.read_csv('penguins.csv')); sorted(scores)",
    )
    outputs = run(folder, *cells)
    html = [
        "".join(each["data"].get("text/html", "") for each in cell if "data" in each)
        for cell in outputs
    ]
    assert "accuracy of species 0." in html[1]
    assert html[1].count("<svg") == 2
    assert "Confusion matrix of species" in html[1]
    assert "species: accuracy" in html[2]
    assert 'class="heat"' in html[3]
    assert outputs[4][0]["data"]["text/plain"] == "'bar'"
    assert "bill_length_mm" in html[5]
    assert outputs[6][0]["data"]["text/plain"] == "['combined', 'species']"


def test_an_error_is_a_line(folder: Path) -> None:
    cells = (
        "import distcore",
        "distcore.train('confg.yaml', dataset='penguins.csv')",
        "distcore.load('results/none')",
    )
    for output in run(folder, *cells, errors=True)[1:]:
        (error,) = output
        assert error["output_type"] == "error"
        assert len(error["traceback"]) == 1
        assert error["traceback"][0].startswith(f"{error['ename']}: ")
    assert "Did you mean config.yaml?" in run(folder, *cells[:2], errors=True)[1][0]["traceback"][0]


def test_figures_of_a_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import distcore
    from distcore_core.errors import UserError

    monkeypatch.chdir(folder)
    outcome = distcore.experiment("config.yaml", dataset="penguins.csv")
    spec = outcome.plot(metric="loss").spec
    assert {each["split"] for each in spec["data"]["values"]} == {"training", "validation"}
    assert spec["encoding"]["y"]["field"] == "loss"
    with pytest.raises(UserError, match="There is no figure 'pie'"):
        outcome.plot("pie")
    with pytest.raises(UserError, match="No evaluation has a metric 'auc'"):
        outcome.plot(metric="auc")
    with pytest.raises(UserError, match="has nothing for a figure 'residuals'"):
        outcome.plot("residuals")
    monkeypatch.chdir(folder.parent)
    with pytest.raises(UserError, match=r"no such folder in .* the run was started in"):
        outcome.plot("confusion")
    monkeypatch.chdir(folder)
    model = distcore.load(outcome.model)
    found = model.evaluate("penguins.csv")
    assert found == distcore.evaluate(outcome.model, "penguins.csv")
    assert repr(outcome.plot()) == "<Figure species: accuracy>"
    skipped = distcore.train("config.yaml", "penguins.csv", skip={"skip_save_model"})
    assert skipped.model is None
    assert not (skipped.directory / "model").exists()


def test_a_search_shows_its_best_trials_and_says_how_many_more(tmp_path: Path) -> None:
    import distcore
    from distcore.workflow.shown import MOST_TRIALS

    def trial(number: int) -> dict[str, Any]:
        return {
            "name": f"{number:04}",
            "state": "finished",
            "score": number / 7,
            "parameters": {"combiner.type": "<b>"},
        }

    few = distcore.SearchOutcome(tmp_path, [trial(0), trial(1)], None, "loss")
    assert "0001" not in repr(few)
    html = few._repr_html_()
    assert html.count("<tr>") == 3
    assert html.index("<th>LOSS</th>") < html.index("0000") < html.index("0.142857")
    assert "&lt;b&gt;" in html
    assert "more" not in html
    many = distcore.SearchOutcome(tmp_path, [trial(each) for each in range(MOST_TRIALS + 5)], None)
    assert many._repr_html_().count("<tr>") == MOST_TRIALS + 1
    assert "; 5 more in its trials" in many._repr_html_()


def test_a_cell_that_was_stopped_says_so_in_a_line() -> None:
    from distcore_core.errors import Stopped

    assert Stopped("Kept.")._render_traceback_() == ["Stopped: Kept."]
    assert Stopped()._render_traceback_() == ["Stopped"]


def test_a_confusion_of_many_classes_is_drawn_from_the_cells_that_were_met(tmp_path: Path) -> None:
    """And a notebook is spared a table of a million cells."""
    import distcore
    from distcore_torch.diagnostics import MATRIX_CLASSES, Classes

    outcome = distcore.Outcome(tmp_path, model=None, training_statistics={})
    for size in (3, MATRIX_CLASSES, MATRIX_CLASSES + 1):
        labels = [f"c{at}" for at in range(size)]
        classes = Classes(labels)
        told = np.array([0, 2, 2])
        classes.update(np.eye(size, dtype=np.float32)[told], np.array([0, 1, 1]), told)
        (tmp_path / "test_diagnostics.json").write_text(json.dumps({"y": classes.as_json()}))
        figure = outcome.plot("confusion")
        met = [each for each in figure.spec["data"]["values"] if each["rows"]]
        assert met == [
            {"truth": "c0", "predicted": "c0", "rows": 1},
            {"truth": "c1", "predicted": "c2", "rows": 2},
        ]
        assert ('class="heat"' in outcome._repr_html_()) == (size == 3)
        assert (f"{size} classes: the confusion matrix is in" in figure.html) == (size > 3)
