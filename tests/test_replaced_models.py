"""A model in use that another one replaces while it is being opened."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import distcore
from distcore.workflow.partitioned.task import Model
from distcore_core.errors import ArtifactError
from distcore_data.artifact import open_artifact
from distcore_torch.training import torch_model

CONFIG = {
    "input_features": [
        {"name": "x", "type": "number", "preprocessing": {"normalization": "zscore"}}
    ],
    "output_features": [{"name": "y", "type": "number"}],
    "trainer": {"epochs": 1},
}
ROWS = {"x": [1.0, 2.0, 30.0]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, `one` and `two`, of one network, that learned other things."""
    folder = tmp_path_factory.mktemp("runs")
    for name, slope in (("one", 2.0), ("two", -2.0)):
        x = np.arange(60.0)
        distcore.train(
            CONFIG,
            dataset=pd.DataFrame({"x": x, "y": slope * x}),
            output_directory=folder,
            experiment_name=name,
        )
        (folder / f"{name}_run").rename(folder / name)
    return folder


@pytest.fixture
def while_opening(monkeypatch: pytest.MonkeyPatch):
    """Has something done between a model's model.json and its weights, once."""

    def arrange(change):
        read, todo = torch_model.read_tensors, [change]

        def changed(path):
            if todo:
                todo.pop()()
            return read(path)

        monkeypatch.setattr(torch_model, "read_tensors", changed)

    return arrange


def test_a_link_to_another_model_changes_nothing_of_the_one_being_opened(
    runs: Path, tmp_path: Path, while_opening
) -> None:
    """The statistics were of one model and the weights of another, in silence."""
    link = tmp_path / "current"
    link.symlink_to(runs / "one")
    wanted = distcore.load(runs / "one").predict(ROWS)
    assert not wanted.equals(distcore.load(runs / "two").predict(ROWS))

    def replace() -> None:
        (tmp_path / "next").symlink_to(runs / "two")
        os.replace(tmp_path / "next", link)

    while_opening(replace)
    assert distcore.load(link).predict(ROWS).equals(wanted)
    assert not distcore.load(link).predict(ROWS).equals(wanted)


def test_a_folder_in_the_place_of_a_model_being_opened_is_told(
    runs: Path, tmp_path: Path, while_opening
) -> None:
    for name in ("one", "two"):
        shutil.copytree(runs / name, tmp_path / name)

    def replace() -> None:
        (tmp_path / "one").rename(tmp_path / "old")
        (tmp_path / "two").rename(tmp_path / "one")

    while_opening(replace)
    with pytest.raises(ArtifactError, match=r"one/model was replaced while it was being opened"):
        distcore.load(tmp_path / "one")
    wanted = distcore.load(runs / "two").predict(ROWS)
    assert distcore.load(tmp_path / "one").predict(ROWS).equals(wanted)


def test_weights_to_start_from_are_of_one_model(runs: Path, tmp_path: Path, while_opening) -> None:
    shutil.copytree(runs / "one", tmp_path / "one")

    def replace() -> None:
        weights = tmp_path / "one" / "model" / "weights.safetensors"
        weights.write_bytes((runs / "two" / "model" / weights.name).read_bytes())

    while_opening(replace)
    with pytest.raises(ArtifactError, match="was replaced while it was being opened"):
        distcore.train(
            CONFIG,
            dataset=pd.DataFrame({"x": np.arange(60.0), "y": np.arange(60.0)}),
            model_load_path=tmp_path / "one",
            output_directory=tmp_path / "results",
        )
    assert not (tmp_path / "results").exists()


def test_a_process_elsewhere_answers_with_no_other_model(runs: Path, tmp_path: Path) -> None:
    """The files that travel with tasks are read again after the model was opened."""
    folder = tmp_path / "model"
    shutil.copytree(runs / "one" / "model", folder)
    opened = open_artifact(folder)
    shutil.rmtree(folder)
    shutil.copytree(runs / "two" / "model", folder)
    sent = Model.of(opened, trust=False)
    shutil.rmtree(folder)  # which the other machine does not see
    with pytest.raises(ArtifactError, match="was replaced meanwhile"):
        sent.open()
