"""Paths of the home folder, which no shell has written out: those of Python and of YAML."""

import json

import distcore
from distcore_testing import data


def test_every_path_may_begin_with_the_home_folder(tmp_path, monkeypatch):
    """Data were found there, while results and caches went to a folder called `~` in the working
    folder; a config was not found."""
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir(), here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    config = data.config("")
    del config["backend"]
    config["trainer"] = {"epochs": 1, "batch_size": 32}
    (home / "config.yaml").write_text(json.dumps(config))
    columns = data.table().to_pylist()
    (home / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in columns))
    outcome = distcore.experiment("~/config.yaml", "~/data.jsonl", output_directory="~/results")
    assert (home / "results" / "experiment_run" / "model" / "model.json").is_file()
    assert list(home.glob(".distcore_cache/*/manifest.json"))
    assert outcome.model.is_dir()
    found = distcore.predict(
        "~/results/experiment_run", "~/data.jsonl", output_file="~/found.parquet"
    )
    assert (home / "found.parquet").samefile(found)
    place = {**config, "backend": {"type": "local", "cache_dir": "~/caches"}}
    distcore.train(
        place, "~/data.jsonl", model_load_path="~/results/experiment_run", output_directory="~/more"
    )
    assert list(home.glob("caches/*/manifest.json"))
    assert list(here.iterdir()) == []


def test_a_file_whose_name_begins_with_a_tilde(tmp_path, monkeypatch):
    """Nobody's home folder: it was an error that nobody expected."""
    monkeypatch.chdir(tmp_path)
    rows = data.table(60)
    (tmp_path / "~nobody.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows.to_pylist())
    )
    cache = distcore.preprocess(data.config(str(tmp_path / "cache")), "~nobody.jsonl")
    assert cache.folder.is_dir()
