"""One dataset, one method: a process of its own, that prints what each seed reached as JSON.

python -m bench.quality.methods DATASET METHOD SEEDS ROWS
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.quality.datasets import SUITE, Dataset

if TYPE_CHECKING:
    import pandas as pd

Files = dict[str, Path]
FEATURE = {"number": "number", "binary": "binary", "classes": "category"}


def frames(dataset: Dataset, files: Files) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training and test rows; a column of texts is a category, as people hand it to trees."""
    import pandas as pd

    train, test = pd.read_csv(files["train"]), pd.read_csv(files["test"])
    for name in train.columns.drop(dataset.target):
        if not pd.api.types.is_numeric_dtype(train[name]):
            values = pd.unique(train[name].dropna())
            train[name], test[name] = (pd.Categorical(each[name], values) for each in (train, test))
    return train, test


def lightgbm(dataset: Dataset, files: Files) -> float:
    """LightGBM's defaults, on the training rows."""
    import lightgbm as library

    kind = library.LGBMRegressor if dataset.kind == "number" else library.LGBMClassifier
    return _fitted(kind(verbose=-1, n_jobs=1), dataset, *frames(dataset, files))


def sklearn(dataset: Dataset, files: Files) -> float:
    """scikit-learn's histogram gradient boosting, which takes at most 255 values of a category."""
    import pandas as pd
    from sklearn import ensemble

    train, test = frames(dataset, files)
    labels = [
        name
        for name in train.columns.drop(dataset.target)
        if isinstance(train[name].dtype, pd.CategoricalDtype)
    ]
    many = [name for name in labels if len(train[name].cat.categories) > 255]
    wanted = "Regressor" if dataset.kind == "number" else "Classifier"
    model = getattr(ensemble, f"HistGradientBoosting{wanted}")(categorical_features="from_dtype")
    return _fitted(model, dataset, train.drop(columns=many), test.drop(columns=many))


def _fitted(model: Any, dataset: Dataset, train: pd.DataFrame, test: pd.DataFrame) -> float:
    model.fit(train.drop(columns=dataset.target), train[dataset.target])
    rows, truth = test.drop(columns=dataset.target), test[dataset.target]
    if dataset.kind == "binary":
        return score(dataset.kind, truth == model.classes_[1], model.predict_proba(rows)[:, 1])
    return score(dataset.kind, truth, model.predict(rows))


def bare(dataset: Dataset, files: Files) -> float:
    """distcore, with names and types of features and nothing else; what has a value in every row
    is left out."""
    import pandas as pd

    train = pd.read_csv(files["train"])
    inputs = []
    for name in train.columns.drop(dataset.target):
        if pd.api.types.is_numeric_dtype(train[name]):
            inputs.append({"name": name, "type": "number"})
        elif train[name].nunique() <= len(train) / 2:
            inputs.append({"name": name, "type": "category"})
    return _experiment(
        {"input_features": inputs, "output_features": [_target(dataset)]}, dataset, files
    )


def _target(dataset: Dataset) -> dict[str, str]:
    return {"name": dataset.target, "type": FEATURE[dataset.kind]}


def init(dataset: Dataset, files: Files) -> float:
    """distcore, with the config that `distcore init` writes."""
    import contextlib
    import io

    import yaml

    from distcore.cli.main import main

    out = io.StringIO()
    sets = ["--training_set", str(files["train"]), "--validation_set", str(files["validation"])]
    with contextlib.redirect_stdout(out):
        code = main(["init", *sets, "--test_set", str(files["test"]), "--target", dataset.target])
    if code:
        raise SystemExit(code)
    return _experiment(yaml.safe_load(out.getvalue()), dataset, files)


def _experiment(config: dict[str, Any], dataset: Dataset, files: Files) -> float:
    import pandas as pd

    import distcore

    folder = files["train"].parent
    backend = {"type": "local", "cache_dir": str(folder / "cache")}
    sets = {f"{name}_set": str(files[split]) for name, split in SETS.items()}
    logging.disable(logging.WARNING)
    try:
        outcome = distcore.experiment(
            {**config, "backend": {**config.get("backend", {}), **backend}},
            **sets,
            output_directory=folder,
            view="none",
        )
    finally:
        logging.disable(logging.NOTSET)
    predicted, truth = (
        pd.read_parquet(outcome.predictions),
        pd.read_csv(files["test"])[dataset.target],
    )
    if dataset.kind == "binary":
        chances = [
            name
            for name in predicted.columns
            if name.startswith(f"{dataset.target}_probabilities_")
        ]
        positive = chances[-1].removeprefix(f"{dataset.target}_probabilities_")
        known = (
            {*POSITIVE, positive.lower()} if positive.lower() in POSITIVE else {positive.lower()}
        )
        return score(
            dataset.kind, truth.astype(str).str.lower().isin(known), predicted[chances[-1]]
        )
    return score(dataset.kind, truth, predicted[f"{dataset.target}_predictions"])


SETS = {"training": "train", "validation": "validation", "test": "test"}
POSITIVE = ("true", "yes", "1")
METHODS: dict[str, Callable[[Dataset, Files], float]] = {
    "lightgbm": lightgbm,
    "sklearn": sklearn,
    "bare": bare,
    "init": init,
}


def score(kind: str, truth: Any, said: Any) -> float:
    """ROC AUC of a binary, share of right classes, or root mean squared error."""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    if kind == "binary":
        return float(roc_auc_score(truth, said))
    if kind == "number":
        return float(np.mean((np.asarray(said, float) - np.asarray(truth, float)) ** 2) ** 0.5)
    return float(np.mean(np.asarray(said).astype(str) == np.asarray(truth).astype(str)))


def reached(dataset: Dataset, method: str, seeds: int, rows: int) -> list[dict[str, float]]:
    """[{"score", "cpu_seconds"}] of each seed."""
    found = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            files = dataset.write(Path(folder), seed, rows)
            start = time.process_time()
            value = METHODS[method](dataset, files)
            found.append({"score": value, "cpu_seconds": round(time.process_time() - start, 2)})
    return found


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    name, chosen, seeds, rows = sys.argv[1:]
    print(
        json.dumps(
            reached(
                next(each for each in SUITE if each.name == name), chosen, int(seeds), int(rows)
            )
        )
    )
