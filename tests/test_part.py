"""`--part K/N` of the root conftest, by which CI runs a share of the tests at a time."""

from types import SimpleNamespace

import pytest

NAMES = ["a.py::test_one", "a.py::test_two[1]", "a.py::test_two[2]", "a.py::T::test_one", "b.py::x"]


@pytest.fixture
def chosen(pytestconfig):
    """(K/N) → what is left of NAMES and what is not."""
    plugin = pytestconfig.pluginmanager.get_plugin(str(pytestconfig.rootpath / "conftest.py"))

    def of(part):
        deselected = []
        hook = SimpleNamespace(pytest_deselected=lambda items: deselected.extend(items))
        config = SimpleNamespace(getoption=lambda name: part, hook=hook)
        items = [SimpleNamespace(nodeid=name) for name in NAMES]
        plugin.pytest_collection_modifyitems(config, items)
        return [each.nodeid for each in items], [each.nodeid for each in deselected]

    return of


@pytest.mark.parametrize("parts", [1, 2, 3, 9])
def test_every_test_is_in_one_part_with_all_of_its_parameters(chosen, parts):
    found = [chosen(f"{number}/{parts}") for number in range(1, parts + 1)]
    assert sorted(name for mine, _ in found for name in mine) == sorted(NAMES)
    assert all(sorted(mine + others) == sorted(NAMES) for mine, others in found)
    assert all((NAMES[1] in mine) == (NAMES[2] in mine) for mine, _ in found)


@pytest.mark.parametrize("part", ["0/4", "5/4", "1/0"])
def test_a_part_that_is_none_is_refused(chosen, part):
    with pytest.raises(pytest.UsageError, match=f"--part {part}: give K/N"):
        chosen(part)
