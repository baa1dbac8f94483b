"""A run whose cache is Avro."""

import distcore
from distcore_testing import data


def test_a_run_with_it_trains(tmp_path):
    config = data.config(str(tmp_path / "cache"))
    config["backend"]["cache_format"] = "avro"
    outcome = distcore.train(config, data.table(), output_directory=tmp_path / "results")
    assert outcome.model.is_dir()
    assert list((tmp_path / "cache").rglob("train/*.avro"))
