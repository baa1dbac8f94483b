"""The library's own scores on the same rows, and what is said if the library or a GPU is not there.
What it shares with other trainers of trees is tried in the toolkit."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xgboost
from pydantic import ValidationError

import distcore
from distcore_core.errors import UserError
from distcore_testing import data
from distcore_trees.rows import Rows
from distcore_xgboost.options import XGBoostOptions
from distcore_xgboost.trainer import XGBoostForest


def trees(folder, output, **options):
    made = data.config(str(folder / "cache"), output_features=[output])
    made["backend"]["trainer"] = {"type": "xgboost", "num_threads": 1, **options}
    return made


@pytest.mark.parametrize(("target", "kind"), [("y", "binary"), ("k", "category"), ("z", "number")])
def test_scores_are_those_of_the_library_itself(target, kind, tmp_path):
    """The same rows, options and trees: what differs is that inputs were normalised, which keeps
    their order."""
    from sklearn.metrics import log_loss, roc_auc_score

    rows = data.table(3000)
    part = np.arange(3000) % 10
    given = rows.append_column("part", pa.array(np.select([part < 7, part == 7], [0, 1], 2)))
    options = {"num_boost_round": 60, "max_depth": 4, "early_stopping_rounds": 0}
    config = trees(tmp_path, {"name": target, "type": kind}, **options)
    config["preprocessing"] = {"split": {"type": "fixed", "column": "part"}}
    outcome = distcore.experiment(config, given, output_directory=tmp_path / "results", view="none")
    ours = outcome.test_statistics[target]
    frame = given.to_pandas()
    inputs = frame[["x0", "x1"]].fillna({"x0": 0.0, "x1": frame["x1"].mean()})
    inputs["colour"] = frame["colour"].astype("category")
    split = frame["part"].to_numpy()
    truth = frame[target]
    if kind == "category":
        truth = truth.astype("category").cat.codes
    objective = {
        "binary": {"objective": "binary:logistic"},
        "category": {"objective": "multi:softprob", "num_class": 3},
        "number": {"objective": "reg:squarederror"},
    }[kind]

    def matrix(split_number):
        chosen = split == split_number
        return xgboost.DMatrix(inputs[chosen], truth[chosen], enable_categorical=True)

    said = xgboost.train(
        {**objective, "learning_rate": 0.1, "max_depth": 4, "seed": 42, "nthread": 1}, matrix(0), 60
    ).predict(matrix(2))
    truth = truth[split == 2].to_numpy()
    if kind == "binary":
        assert ours["roc_auc"] == pytest.approx(roc_auc_score(truth, said), abs=0.01)
    elif kind == "category":
        assert ours["loss"] == pytest.approx(log_loss(truth, said), rel=0.05)
    else:
        rmse = float(np.mean((said - truth) ** 2) ** 0.5)
        assert ours["root_mean_squared_error"] == pytest.approx(rmse, rel=0.05)


def test_the_model_is_a_file_that_the_library_opens(tmp_path):
    config = trees(tmp_path, {"name": "y", "type": "binary"}, num_boost_round=7)
    outcome = distcore.train(
        config, data.table(), output_directory=tmp_path / "results", view="none"
    )
    booster = xgboost.Booster(model_file=str(Path(outcome.model) / "trees-0.ubj"))
    assert booster.num_boosted_rounds() == 7
    assert booster.feature_types == ["q", "q", "c"]


def test_trees_that_are_gone_on_with_keep_their_base():
    """Those of yesterday began where XGBoost said, and not at the median."""
    values = np.random.default_rng(1).random((200, 2), np.float32)
    rows = Rows(values, [], 50 + values[:, 0], None, np.ones(200, bool))
    huber = {"objective": "reg:pseudohubererror", "device": "cpu", "seed": 1, "nthread": 1}
    huber |= {"subsample": 1.0, "colsample_bytree": 1.0}
    begun = XGBoostForest({**huber, "base_score": 49.0}, rows, None, None)
    begun.grow()
    again = XGBoostForest({**huber, "base_score": 50.5}, rows, None, begun.content())
    assert np.array_equal(again.outputs("train"), begun.outputs("train"))
    for each in (begun, again):
        each.grow()
    assert again.outputs("train") == pytest.approx(begun.outputs("train"), abs=1e-4)


@pytest.mark.skipif(xgboost.build_info()["USE_CUDA"], reason="this XGBoost has CUDA in it")
def test_cuda_without_a_library_that_has_it_is_refused(tmp_path):
    config = trees(tmp_path, {"name": "y", "type": "binary"}, device="cuda")
    with pytest.raises(UserError, match=r"built without CUDA: pip uninstall xgboost-cpu"):
        distcore.train(config, data.table(), output_directory=tmp_path / "results")


def test_without_the_library_it_is_told_what_to_install(tmp_path):
    """A finder that knows no xgboost stands for an environment without it."""
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "xgboost":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from distcore.cli.main import main
sys.exit(main(["plan", "--config", sys.argv[1], "--dataset", sys.argv[2]]))
"""
    (tmp_path / "config.yaml").write_text(
        "input_features: [{name: a, type: number}]\noutput_features: [{name: b, type: number}]\n"
        "backend: {type: local, trainer: xgboost}\n"
    )
    (tmp_path / "data.csv").write_text("a,b\n1,2\n3,4\n")
    words = [str(tmp_path / "config.yaml"), str(tmp_path / "data.csv")]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install xgboost-cpu (6 MB), or xgboost for NVIDIA GPUs" in done.stderr
    assert "Traceback" not in done.stderr


def test_whole_numbers_are_within_what_the_library_holds():
    """It refused larger ones after encoding, in its own words."""
    most = 2**31 - 1
    XGBoostOptions(max_depth=most, max_bin=most)
    for name in ("max_depth", "max_bin", "num_threads"):
        with pytest.raises(ValidationError, match=name):
            XGBoostOptions(**{name: most + 1})
