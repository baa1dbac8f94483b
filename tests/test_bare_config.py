"""A config that names features and nothing else learns, and `plan` says what it was taken for."""

import pyarrow as pa
import pytest
from sklearn import datasets

import distcore
from distcore.cli.main import main
from distcore_testing import data


def bare(bunch, kind, tmp_path):
    """(features and nothing else, the table)."""
    names = [name.replace("/", " ") for name in bunch.feature_names]
    columns = dict(zip(names, bunch.data.T, strict=True))
    config = {
        "input_features": [{"name": name, "type": "number"} for name in names],
        "output_features": [{"name": "target", "type": kind}],
        "backend": {"type": "local", "cache_dir": str(tmp_path / "cache")},
    }
    target = bunch.target.astype(str) if kind == "category" else bunch.target
    return config, pa.table({**columns, "target": target})


@pytest.mark.parametrize(
    ("name", "kind", "metric", "least"),
    [("wine", "category", "accuracy", 0.9), ("diabetes", "number", "r2", 0.3)],
)
def test_it_learns(name, kind, metric, least, tmp_path):
    """A linear model that sees a batch an epoch reached 0.307 and -4.7."""
    config, table = bare(getattr(datasets, f"load_{name}")(), kind, tmp_path)
    outcome = distcore.experiment(config, table, output_directory=tmp_path / "results", view="none")
    assert outcome.test_statistics["target"][metric] > least


def test_plan_says_what_it_was_taken_for(tmp_path, capsys):
    given = data.config(str(tmp_path / "cache"))
    del given["combiner"], given["trainer"]
    planned = distcore.plan(given, data.table(600))
    said = (
        "The config has no combiner, so it is {type: concat, output_size: 256, num_fc_layers: 2}."
    )
    assert said in planned["notes"]
    assert planned["training"]["batch_size"] == 8
    named = {**given, "combiner": {"type": "concat"}, "trainer": {"batch_size": 100}}
    planned = distcore.plan(named, data.table(600))
    assert not any("combiner" in note for note in planned["notes"])
    assert planned["training"]["batch_size"] == 100
    (tmp_path / "bare.yaml").write_text(
        "input_features: [{name: x, type: number}]\noutput_features: [{name: y, type: number}]\n"
    )
    (tmp_path / "data.csv").write_text("x,y\n" + "".join(f"{each},{each}\n" for each in range(50)))
    assert (
        main(
            [
                "plan",
                "--config",
                str(tmp_path / "bare.yaml"),
                "--dataset",
                str(tmp_path / "data.csv"),
            ]
        )
        == 0
    )
    assert "no combiner" in capsys.readouterr().out


def test_a_combiner_that_is_named_is_ludwigs(tmp_path):
    """`{type: concat}` has no layers: a model that is linear on purpose."""
    given = data.config(str(tmp_path / "cache"), combiner={"type": "concat"})
    outcome = distcore.train(
        given, data.table(), output_directory=tmp_path / "results", view="none"
    )
    names = distcore.load(outcome.model).predictor.module.state_dict()
    assert not any("combiner" in name for name in names)
