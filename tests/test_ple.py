"""The encoder `ple` in whole runs: what it learns, what is kept, and which caches it shares."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import distcore

ROWS = 1200


@pytest.fixture(scope="module")
def data():
    """A target that jumps up and down along x, an empty x here and there, a constant column."""
    random = np.random.default_rng(5)
    x = random.random(ROWS)
    parts = np.array([0, 0, 0, 0, 0, 0, 0, 1, 2, 2])[np.arange(ROWS) % 10]
    columns = {
        "x": pa.array(x, mask=np.arange(ROWS) % 50 == 1),
        "same": np.full(ROWS, 7.0),
        "y": np.sign(np.sin(40 * x)),
        "part": parts,
    }
    return pa.table(columns)


def config(folder, encoder):
    return {
        "input_features": [
            {"name": "x", "type": "number", "encoder": encoder},
            {"name": "same", "type": "number", "encoder": encoder},
        ],
        "output_features": [{"name": "y", "type": "number"}],
        "preprocessing": {"split": {"type": "fixed", "column": "part"}},
        "combiner": {"type": "concat", "num_fc_layers": 1, "output_size": 32},
        "trainer": {"epochs": 15, "batch_size": 32, "learning_rate": 0.01},
        "backend": {"type": "local", "cache_dir": str(folder / "cache")},
    }


def test_it_learns_what_bends_and_predicts_the_same_once_it_is_loaded(data, tmp_path):
    reached = {}
    for kind in ("ple", "dense"):
        given = config(tmp_path, {"type": kind, "output_size": 16})
        folder = tmp_path / kind
        outcome = distcore.experiment(given, data, output_directory=folder, view="none")
        reached[kind] = outcome.test_statistics["y"]["r2"]
        test = data.filter(data["part"].to_numpy() == 2)
        again = distcore.load(outcome.model).predict(test)
        expected = pq.read_table(outcome.predictions)["y_predictions"].to_numpy()
        assert np.array_equal(np.asarray(again["y_predictions"]), expected)
    assert reached["ple"] > 0.7 > reached["dense"] + 0.2


def test_caches_go_by_the_bins_and_by_no_other_option_of_it(data, tmp_path):
    def key(encoder):
        found = distcore.preprocess(config(tmp_path, encoder), data, view="none")
        return str(found)

    eight = key({"type": "ple", "num_bins": 8})
    assert key({"type": "ple", "num_bins": 8, "output_size": 3, "activation": "relu"}) == eight
    assert key({"type": "ple", "num_bins": 9}) != eight
    assert key({"type": "dense"}) not in (eight, key({"type": "ple", "num_bins": 9}))
    assert key({"type": "dense"}) == key({"type": "passthrough"})
