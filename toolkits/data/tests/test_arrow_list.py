"""A list that Arrow holds is read as any other."""

import pickle

import pyarrow as pa
import pytest

from distcore_data import arrow_list
from distcore_data.arrow_list import ArrowList


@pytest.mark.parametrize("values", [[], ["a"], ["b", "a", "", "ß", "b"], [3, -1, 3, 2**40]])
def test_it_reads_as_the_list_does(values, monkeypatch):
    monkeypatch.setattr(arrow_list, "AT_ONCE", 2)
    found = ArrowList(pa.array(values, pa.int64() if 3 in values else pa.utf8()))
    assert list(found) == values
    assert len(found) == len(values)
    assert bool(found) == bool(values)
    assert found == values
    assert values == found
    assert found == ArrowList(pa.array(values, found.values.type))
    assert pickle.loads(pickle.dumps(found)) == values  # noqa: S301
    assert repr(found) == repr(values)
    assert found[1:4] == values[1:4]
    assert [found[at] for at in range(-len(values), len(values))] == values * 2
    assert [found.index(each) for each in values] == [values.index(each) for each in values]
    assert all(each in found for each in values)


def test_it_is_equal_to_what_holds_the_same_alone():
    found = ArrowList(pa.array(["a", "b"]))
    assert found != ["a"]
    assert found != ["a", "c"]
    assert found != ("a", "b")
    assert found != ArrowList(pa.array(["a"]))
    with pytest.raises(IndexError):
        found[2]
    with pytest.raises(TypeError):
        hash(found)
