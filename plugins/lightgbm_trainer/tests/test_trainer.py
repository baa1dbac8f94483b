"""The same config as for a network, with another trainer: train, evaluate, predict, report; and
what is refused."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import lightgbm
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from pydantic import ValidationError

import distcore
from distcore.cli.main import main
from distcore_core.errors import ConfigError, DifferentRun, UserError
from distcore_lightgbm.options import LightGBMOptions
from distcore_lightgbm.trainer import LightGBMForest, LightGBMTrainer, SavedForest
from distcore_testing import data
from distcore_trees import Rows

ROOT = Path(__file__).parents[3]
PENGUINS = ROOT / "examples" / "penguins"
TREES = {"type": "lightgbm", "num_threads": 1, "min_data_in_leaf": 5}


@pytest.fixture
def penguins(tmp_path):
    """The example's dataset and its config as a mapping."""
    shutil.copy(PENGUINS / "penguins.csv", tmp_path)
    return tmp_path, yaml.safe_load((PENGUINS / "config.yaml").read_text())


def trees(config, **options):
    """The same config, only `backend.trainer` changed."""
    backend = config.get("backend") or {}
    backend = {"type": backend} if isinstance(backend, str) else dict(backend)
    return {**config, "backend": {**backend, "trainer": {**TREES, **options}}}


def test_a_config_for_a_network_trains_trees_by_one_line(penguins, capsys):
    folder, config = penguins
    (folder / "trees.yaml").write_text(yaml.safe_dump(trees(config)))
    words = ["--dataset", str(folder / "penguins.csv"), "--output_directory", str(folder)]
    assert main(["experiment", "--config", str(folder / "trees.yaml"), *words, "-l", "error"]) == 0
    run = folder / "experiment_run"
    scores = json.loads((run / "test_statistics.json").read_text())
    assert scores["species"]["accuracy"] > 0.9
    assert json.loads((run / "model" / "model.json").read_text())["trainer"]["type"] == "lightgbm"
    assert (run / "model" / "trees-0.txt").read_text().startswith("tree\n")
    assert main(["evaluate", "--model_path", str(run), *words, "-l", "error"]) == 0
    assert main(["predict", "--model_path", str(run), *words, "-l", "error", "--overwrite"]) == 0
    predictions = pyarrow.parquet.read_table(folder / "predictions.parquet")
    assert predictions.num_rows == 344
    (run / "report.html").unlink()
    assert main(["report", str(run)]) == 0
    assert "species" in (run / "report.html").read_text()
    assert main(["plan", "--config", str(folder / "trees.yaml"), *words[:2]]) == 0
    assert "num boost round: 200" in capsys.readouterr().out


def test_the_cache_of_a_network_is_the_cache_of_trees(penguins):
    folder, config = penguins
    network = distcore.plan(config, str(folder / "penguins.csv"))
    assert (
        distcore.plan(trees(config), str(folder / "penguins.csv"))["cache"]["key"]
        == network["cache"]["key"]
    )


def test_init_writes_a_config_for_trees_that_trains(penguins, monkeypatch):
    folder, _ = penguins
    monkeypatch.chdir(folder)
    words = ["--dataset", "penguins.csv"]
    assert (
        main(["init", *words, "--target", "species", "--model", "trees", "--output", "trees.yaml"])
        == 0
    )
    assert main(["experiment", "--config", "trees.yaml", *words, "-l", "error"]) == 0
    scores = json.loads((folder / "results/experiment_run/test_statistics.json").read_text())
    assert scores["species"]["accuracy"] > 0.9


def test_where_it_is_not_installed_the_error_says_what_to_install(penguins):
    """Blocked stands for not installed: the name is then offered by nobody."""
    folder, config = penguins
    with pytest.raises(UserError, match="lightgbm"):
        distcore.plan(
            trees({**config, "plugins": {"block": ["distcore-lightgbm"]}}),
            str(folder / "penguins.csv"),
        )


@pytest.mark.parametrize(("target", "kind"), [("y", "binary"), ("z", "number")])
def test_scores_are_those_of_the_library_itself(target, kind, tmp_path):
    """The same rows, options and trees: what differs is that inputs were normalised, which keeps
    their order."""
    from sklearn.metrics import roc_auc_score

    rows = data.table(3000)
    part = np.arange(3000) % 10
    given = rows.append_column("part", pa.array(np.select([part < 7, part == 7], [0, 1], 2)))
    options = {
        "num_boost_round": 80,
        "learning_rate": 0.1,
        "num_leaves": 15,
        "early_stopping_rounds": 0,
    }
    config = trees(
        data.config(
            str(tmp_path / "cache"),
            output_features=[{"name": target, "type": kind}],
            preprocessing={"split": {"type": "fixed", "column": "part"}},
        ),
        **options,
    )
    outcome = distcore.experiment(config, given, output_directory=tmp_path / "results", view="none")
    ours = outcome.test_statistics[target]
    frame = given.to_pandas()
    inputs = frame[["x0", "x1"]].fillna({"x0": 0.0, "x1": frame["x1"].mean()})
    inputs["colour"] = frame["colour"].astype("category").cat.codes
    split = frame["part"].to_numpy()
    train = lightgbm.Dataset(
        inputs[split == 0], frame[target][split == 0], categorical_feature=["colour"]
    )
    parameters = {
        "objective": "binary" if kind == "binary" else "regression",
        "learning_rate": 0.1,
        "num_leaves": 15,
        "min_data_in_leaf": TREES["min_data_in_leaf"],
        "verbosity": -1,
        "num_threads": 1,
        "seed": 42,
    }
    said = lightgbm.train(parameters, train, 80).predict(inputs[split == 2])
    truth = frame[target][split == 2].to_numpy()
    if kind == "binary":
        assert ours["roc_auc"] == pytest.approx(roc_auc_score(truth, said), abs=0.01)
    else:
        rmse = float(np.mean((said - truth) ** 2) ** 0.5)
        assert ours["root_mean_squared_error"] == pytest.approx(rmse, rel=0.05)


def test_an_option_that_lightgbm_does_not_have(penguins):
    folder, config = penguins
    with pytest.raises(ConfigError, match="num_leaves"):
        distcore.plan(trees(config, num_leafs=5), str(folder / "penguins.csv"))


@pytest.mark.parametrize("work", [distcore.plan, distcore.train])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"output_features": [{"name": "y", "type": "binary", "loss": "focal"}]}, "no loss 'foc"),
        ({"input_features": [{"name": "words", "type": "text"}]}, "cannot use words"),
        ({"trainer": {"validation_metric": "accuracies"}}, "metric 'accuracies'"),
    ],
)
def test_the_plan_refuses_what_training_would(work, change, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=said):
        work({**trees(data.config(str(tmp_path / "cache"))), **change}, data.table(200))


def test_a_gpu_that_is_not_there_is_told(tmp_path):
    """The wheel's OpenCL finds no device here, or this build has none."""
    config = trees(data.config(str(tmp_path / "cache")), device_type="gpu")
    with pytest.raises(UserError, match=r"LightGBM refuses to train .*or train on the CPU"):
        distcore.train(config, data.table(), output_directory=tmp_path / "results")


def forest(
    inputs: np.ndarray,
    share: float,
    before: bytes | None = None,
    objective: str = "binary",
    **options: object,
) -> LightGBMForest:
    """Of rows whose target is told by the first column; the last one holds codes."""
    target = (inputs[:, 0] > 0).astype(np.float32)
    rows = Rows(inputs, [inputs.shape[1] - 1], target, None, np.ones(len(inputs), np.bool_))
    parameters = {
        "objective": objective,
        "feature_fraction": share,
        "device_type": "cpu",
        "seed": 42,
        "num_threads": 1,
        "verbosity": -1,
        **options,
    }
    return LightGBMForest(parameters, rows, None, before)


def grown(made: LightGBMForest, rounds: int) -> list[bool]:
    return [made.grow() for _ in range(rounds)]


def numbers(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, columns)).astype(np.float32)


def with_a_column_that_cannot_be_split() -> np.ndarray:
    """Ten classes of 15 rows each, of which a leaf of 20 cannot be made."""
    return np.stack([numbers(150, 1)[:, 0], np.arange(150) % 10], 1).astype(np.float32)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_forest_that_goes_on_ends_with_the_same_bytes(share: float) -> None:
    inputs = np.abs(numbers(200, 4))
    inputs[:, 0] -= 1
    whole, first = forest(inputs, share), forest(inputs, share)
    assert all(grown(whole, 5) + grown(first, 2))
    older = first.first(2)  # older checkpoints have the trees alone
    for before in (first.content(), older):
        again = forest(inputs, share, before)
        assert all(grown(again, 3))
        assert again.content() == whole.content()


def test_a_round_whose_columns_cannot_be_split_does_not_end_the_forest() -> None:
    inputs = with_a_column_that_cannot_be_split()
    whole, outputs = forest(inputs, 0.5), []
    for _ in range(12):
        assert whole.grow()
        outputs.append(whole.outputs("train"))
    assert len(np.unique(outputs, axis=0)) in range(3, 11), "no round, or each, drew that column"
    for rounds, told in enumerate(outputs, start=1):
        saved = SavedForest(lightgbm.Booster(model_str=whole.first(rounds).decode()))
        np.testing.assert_allclose(saved.outputs(inputs), told, rtol=1e-6)
        first = forest(inputs, 0.5)
        grown(first, rounds)
        again = forest(inputs, 0.5, first.content())
        assert all(grown(again, 12 - rounds))
        assert again.content() == whole.content()


def test_a_forest_that_goes_on_is_over_where_it_would_have_been() -> None:
    """A tree of full weight tells the target of two values, and no second one improves on it."""
    inputs = (np.arange(200) % 2).astype(np.float32)[:, None]
    options = {"objective": "regression", "learning_rate": 1.0}
    first = forest(inputs, 1.0, **options)
    assert grown(first, 1) == [True]
    again = forest(inputs, 1.0, first.content(), **options)
    assert grown(first, 1) == grown(again, 1) == [False]
    assert again.first(1) == first.first(1)


def test_whole_numbers_are_within_what_the_library_holds():
    """4,294,967,298 leaves were two: the library took the lower 32 bits."""
    largest = {"num_leaves": 131_072, "min_data_in_leaf": 2**31 - 1, "num_threads": 2**31 - 1}
    LightGBMOptions(**largest)
    for name, most in largest.items():
        for more in (most + 1, 2**32 + 2):
            with pytest.raises(ValidationError, match=name):
                LightGBMOptions(**{name: more})
    values, kept = np.arange(40.0, dtype=np.float32), np.ones(40, bool)
    rows = Rows(values[:, None], (), values, None, kept)
    trainer = LightGBMTrainer(LightGBMOptions(**{**largest, "num_threads": 1}))
    output = SimpleNamespace(loss=SimpleNamespace(type="mean_squared_error"), kind="number")
    assert trainer.begin(output, rows, None, 0, None).grow()


def test_another_run_in_a_bucket_is_named_by_its_address(penguins):
    """It was by the folder that the bucket had been copied to."""
    folder, config = penguins
    address = "memory://trees-of-another-run"
    asked = {"dataset": str(folder / "penguins.csv"), "view": "none"}
    found = distcore.train(trees(config), output_directory=address, **asked)
    with pytest.raises(DifferentRun, match=f"The checkpoint {address}/experiment_run/checkpoints/"):
        distcore.train(
            trees({**config, "random_seed": 7}), model_resume_path=found.directory, **asked
        )
