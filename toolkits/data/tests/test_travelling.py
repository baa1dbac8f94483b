"""Errors on their way to another process."""

import copyreg
import pickle

import pytest

from distcore_core.errors import ConfigError, ConfigIssue, DataError, DistcoreError, StoreError
from distcore_data.travelling import portable


class TwoWords(DataError):
    """Made of two words; a pickle gives it one."""

    def __init__(self, column, row):
        super().__init__(f"{column} is odd in row {row}.")


class Doubled(StoreError):
    """Comes out of a pickle with more words than it had; says its own exit code."""

    exit_code = 7

    def __init__(self, what, where="here"):
        super().__init__(f"{what} {where}")


class Held(DistcoreError):
    """Holds what no pickle takes."""

    def __init__(self, what):
        super().__init__(what)
        self.held = lambda: None


class Foreign(Exception):
    def __init__(self, code, words):
        super().__init__(f"{code}: {words}")


class Turned(Exception):
    def __reduce__(self):
        return KeyError, self.args


@pytest.fixture(autouse=True)
def as_python_pickles(monkeypatch):
    """Dask has every class of errors that is there when it is imported pickled by tblib, which
    brings these over."""
    for kind in (TwoWords, Doubled, Held, Foreign, Turned):
        monkeypatch.delitem(copyreg.dispatch_table, kind, raising=False)


def there(error):
    return pickle.loads(pickle.dumps(portable(error)))  # noqa: S301 - ours


@pytest.mark.parametrize(
    ("error", "kind"),
    [(TwoWords("age", 3), DataError), (Doubled("no"), StoreError), (Held("no"), DistcoreError)],
)
def test_an_error_of_ours_that_no_pickle_takes_comes_out_as_its_kind_with_its_words(error, kind):
    found = there(error)
    assert type(found) is kind
    assert str(found) == str(error)
    assert (found.exit_code, found.recurs) == (error.exit_code, error.recurs)


def test_one_that_comes_out_as_another_one_is_told_in_words():
    """Whoever catches it goes by its type."""
    assert repr(there(Turned("no"))) == "RuntimeError('Turned: no')"


def test_another_one_is_told_in_words():
    assert repr(there(Foreign(3, "no"))) == "RuntimeError('Foreign: 3: no')"


@pytest.mark.parametrize("error", [ConfigError([ConfigIssue(3, "a", "is odd")]), KeyError("a")])
def test_one_that_comes_out_as_it_went_in_travels_itself(error):
    assert portable(error) is error
    assert repr(there(error)) == repr(error)
