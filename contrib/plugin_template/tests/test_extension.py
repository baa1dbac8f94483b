"""What the extension writes."""

import json

import distcore
from distcore_testing import data


def test_a_line_for_each_evaluation(tmp_path):
    config = data.config(
        str(tmp_path / "cache"),
        extensions=[{"type": "lines", "path": str(tmp_path / "lines.jsonl")}],
    )
    config["trainer"]["epochs"] = 3
    outcome = distcore.train(config, data.table(), output_directory=tmp_path / "results")
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    losses = [line["metrics"]["validation"]["y"]["loss"] for line in lines]
    assert losses == outcome.training_statistics["validation"]["y"]["loss"]


def test_a_file_that_cannot_be_written_is_a_warning_and_the_run_goes_on(tmp_path, caplog):
    config = data.config(
        str(tmp_path / "cache"),
        extensions=[{"type": "lines", "path": str(tmp_path / "no" / "lines")}],
    )
    outcome = distcore.train(config, data.table(), output_directory=tmp_path / "results")
    assert outcome.model.is_dir()
    assert "'lines' failed at epoch_finished" in caplog.text
