"""How far a column's values in one split lie from those of the training split."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distcore
from distcore.workflow import drift
from distcore.workflow.drift import drifts, drifts_of
from distcore_data.cache import open_cache
from distcore_testing import data


@pytest.mark.parametrize(
    ("train", "test", "expected"),
    [
        ([3.0, 1.0, 2.0, 2.0], [2.0, 1.0, 2.0, 3.0], 0.0),
        ([1.0, 2.0], [4.0, 3.0, 5.0], 1.0),
        ([4.0, 1.0, 3.0, 2.0], [9.0, 1.0, 2.0, 0.0], 0.25),
        ([0, 0, 1], [1, 1, 1], 2 / 3),
        ([-1, 2], [2, 0], 0.0),  # an unknown code counts as the first
        ([], [1.0], 1.0),
        ([1.0, 2.0], [], 1.0),
        ([], [], 0.0),
    ],
)
def test_numbers_by_kolmogorov_and_smirnov_and_codes_by_their_shares(train, test, expected):
    kind = np.int32 if any(isinstance(each, int) for each in test) else np.float32
    values = np.array(train, kind)
    found = drifts({"train": values, "test": np.array(test, kind), "validation": values})
    assert found == {"test": pytest.approx(expected), "validation": 0.0}


NUMBERS = st.lists(st.integers(-5, 5).map(float) | st.floats(-9, 9, width=32), min_size=1)


@given(NUMBERS, NUMBERS)
def test_at_no_value_of_either_do_the_shares_lie_further_apart(train, test):
    one, other = np.array(train, np.float32), np.array(test, np.float32)
    apart = [abs((one <= each).mean() - (other <= each).mean()) for each in (*one, *other)]
    found = drifts({"train": one, "test": other})
    assert found == {"test": pytest.approx(max(apart), abs=1e-12)}


def test_there_is_none_without_training_rows():
    assert drifts({"test": np.ones(3, np.float32)}) == {}
    assert drifts({}) == {}


def test_a_table_of_any_width_is_looked_at_a_few_columns_at_a_time(tmp_path, monkeypatch):
    cache = distcore.preprocess(data.config(str(tmp_path / "cache")), data.table(), view="none")
    with open_cache(cache) as reader:
        names = [name for name, column in reader.columns.items() if column.width == 1]
        found = drifts_of(reader, names)
        assert list(found) == names
        assert all(0 <= each <= 1 for splits in found.values() for each in splits.values())
        read, together = reader.read, []
        monkeypatch.setattr(drift, "AT_ONCE", 8 * data.table().num_rows)
        monkeypatch.setattr(
            reader, "read", lambda *given: together.append(given[3]) or read(*given)
        )
        assert drifts_of(reader, names) == found
    assert max(map(len, together)) == 2 < len(names)


def test_a_split_without_rows_is_left_out(tmp_path):
    """The summary of an experiment without validation rows lacked its columns."""
    config = data.config(str(tmp_path / "cache"))
    config["preprocessing"] = {"split": {"type": "random", "probabilities": [0.8, 0.0, 0.2]}}
    cache = distcore.preprocess(config, data.table(), view="none")
    with open_cache(cache) as reader:
        names = [name for name, column in reader.columns.items() if column.width == 1]
        assert [list(each) for each in drifts_of(reader, names).values()] == [["test"]] * len(names)
