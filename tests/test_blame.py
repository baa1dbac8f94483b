"""Whatever a plugin raises unexpectedly is told with its distribution, its role and name and, for
data, the column and the row."""

import json
import re

import pytest

FEATURE = """
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)

@hookimpl
def distcore_make_feature(name, column, role, options):
    from distcore_odd_feature import Odd

    return Odd(column, options)
"""
NUMBERS = """
import pyarrow as pa
import pyarrow.compute as pc
from distcore_core.plugin import Column, FeatureBase


class Odd(FeatureBase):
    raw = "number"

    def __init__(self, name, options):
        self.name, self.options = name, options

    def partial(self, values):
        {partial}
        return 0

    def merge(self, left, right):
        return left + right

    def finish(self, state):
        return {{}}

    def column(self, metadata):
        return Column(name=self.name, dtype="float32")

    def encode(self, values, metadata):
        {encode}
        return pc.cast(values, "float32")

    def network(self):
        return OddNetwork()


class OddNetwork:
    def encoder(self, metadata):
        raise ArithmeticError("no network today")
"""
AT_ROW = "assert 33.0 not in values.to_pylist(), 'unlucky'"
CONFIG = {
    "input_features": [{"name": "age", "type": "odd"}],
    "output_features": [{"name": "bought", "type": "binary"}],
    "trainer": {"epochs": 1},
}


NO_COLUMN = "pass\n\n    def nothing(self, metadata):\n        pass\n\n    def other(self):"


@pytest.fixture
def odd(place, distribution, tmp_path):
    """odd(partial, encode, config): beside it a distribution whose feature type does that; what
    the run said then."""

    def run(command="train", partial="pass", encode="pass", code=1, **config):
        site = tmp_path / "site"
        info = distribution(
            site, "distcore-odd", FEATURE, kind="features", entry="odd", version="0.3"
        )
        (site / "distcore_odd_feature.py").write_text(
            NUMBERS.format(partial=partial, encode=encode)
        )
        record = "distcore_odd.py,,\ndistcore_odd_feature.py,,\n"
        (info / "RECORD").write_text(record)
        rows = "".join(f"{n},{'yes' if n % 3 else 'no'}\n" for n in range(100))
        place.write("data.csv", "age,bought\n" + rows)
        place.write("config.yaml", json.dumps(CONFIG | config))
        return place.beside(site, *place.words(command), code=code)

    return run


@pytest.mark.parametrize("where", ["partial", "encode"])
@pytest.mark.parametrize("processor", ["local", "dask"])
def test_a_feature_that_raises_is_named_with_column_and_row(odd, where, processor):
    config = {"backend": {"type": "local", "processor": {"type": processor}}}
    told = odd("preprocess", **{where: AT_ROW}, **config)
    assert "AssertionError: unlucky" in told
    assert "It was raised for column 'age', row 33 (the first is 0)." in told
    assert "feature 'odd' of distcore-odd 0.3." in told


@pytest.mark.system
@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_network_raises_in_a_rank_names_the_plugin(odd, workers):
    trainer = {"type": "data_parallel", "num_workers": workers, "max_retries": 0}
    told = odd(backend={"type": "local", "trainer": trainer})
    assert "ArithmeticError: no network today" in told
    assert "It was raised by feature 'odd' of distcore-odd 0.3." in told


def test_rows_that_are_wrong_only_together_are_told_as_a_range(odd):
    told = odd("preprocess", encode="assert not {3.0, 90.0} <= set(values.to_pylist()), 'both'")
    assert re.search(r"raised for column 'age', rows 0 to 99 \(the first is 0\)", told)


@pytest.mark.parametrize(
    ("encode", "fault"),
    [
        ("return pc.cast(values, 'float32')[1:]", "gave 99 values for 100 rows of column 'age'"),
        ("return values", "made double of column 'age', but the feature's `column` says float"),
        ("return None", "gave NoneType for column 'age', and no Arrow array"),
        (
            "return values.to_numpy(zero_copy_only=False).reshape(-1, 1)",
            "gave ndarray for column 'age', and no Arrow array",
        ),
        ("return pa.array([[1.0]] * len(values))", "made list<item: double> of column 'age', but "),
    ],
)
def test_a_feature_that_encodes_something_else_is_named_before_it_is_written(odd, encode, fault):
    """Of too few values, whatever lies behind them in memory was taken for the last rows'."""
    told = odd("preprocess", encode=encode)
    assert f"distcore_odd_feature.Odd.encode {fault}" in told
    assert "Report this to its authors." in told


def test_a_feature_without_a_column_is_named(odd):
    told = odd("preprocess", encode="self.column = self.nothing", partial=NO_COLUMN)
    assert "distcore_odd_feature.Odd.nothing gave NoneType for column 'age', and no Column" in told


def test_a_way_to_read_that_there_is_not_is_told_by_its_feature(odd):
    told = odd("preprocess", partial="pass\n\n    raw = 'decimal'\n\n    def other(self):")
    assert "distcore_odd_feature.Odd.raw is 'decimal', which is none of number, category" in told


def test_our_own_errors_keep_their_words(odd):
    code = "from distcore_core.errors import DataError; raise DataError('Bad data. Mend it.')"
    told = odd("preprocess", encode=code, code=2)
    assert told.strip().endswith("data.csv, line 2: Bad data. Mend it.")


TRAINER = """
from distcore_core.plugin import TrainerBase, hookimpl

DISTCORE_API = (1, 0)

class Thing(TrainerBase):
    def plan(self, job, backend):
        return {"workers": 1, "notes": []}
    def fit(self, job, backend, progress):
        return {}["it"]
    def load(self, directory, features, *, trust=False):
        return None

@hookimpl
def distcore_make_trainer(name, options):
    FACTORY
    return Thing()
"""


def train(place, distribution, tmp_path, factory):
    site = tmp_path / "site"
    source, offers = TRAINER.replace("FACTORY", factory), {"trainers": ["mine", "other"]}
    distribution(site, "some-trainers", source, offers=offers)
    place.write(
        "config.yaml",
        (place.folder / "config.yaml")
        .read_text()
        .replace("backend: local", "backend: {type: local, trainer: {type: mine}}"),
    )
    return place.beside(site, *place.words("train"), code=1)


def test_a_trainer_of_several_is_named(place, distribution, tmp_path):
    told = train(place, distribution, tmp_path, "pass")
    assert "distcore: KeyError: 'it'" in told
    assert "It was raised by trainer 'mine' of some-trainers 1.0." in told


def test_a_factory_that_raises_is_named(place, distribution, tmp_path):
    told = train(place, distribution, tmp_path, "1 / 0")
    assert "some-trainers 1.0 offers trainer 'mine', but its distcore_make_trainer raised" in told
    assert "ZeroDivisionError: division by zero. Report this to its authors." in told


def test_nobody_is_blamed_for_an_error_of_ours():
    from distcore_data.blame import blaming, notes_of

    with pytest.raises(ValueError, match="ours") as caught, blaming():
        raise ValueError("ours")
    assert notes_of(caught.value) == []
