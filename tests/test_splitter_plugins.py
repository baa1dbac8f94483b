"""A splitter from outside, with options of its own: rows by the first letter of a column."""

import json
from functools import partial

import pytest

SPLITTER = """
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)
DATA_VERSION = {version}

@hookimpl
def distcore_options_model(kind, name):
    if kind == "splitters":
        from distcore_letters_splitter import LetterOptions

        return LetterOptions

@hookimpl
def distcore_make_member(kind, name, options, context):
    if kind == "splitters":
        from distcore_letters_splitter import Letters

        return Letters(options, **context)
"""

LETTERS = '''
import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from distcore_data import Splitter
from distcore_data.encoding.splitter import coded


class LetterOptions(BaseModel):
    """Rows by a letter."""

    model_config = ConfigDict(extra="forbid")
    validation: str = Field("O", min_length=1, description="First letters of validation rows.")
    test: str = "L"


class Letters(Splitter):
    def __init__(self, options, seed, probabilities, column):
        super().__init__(seed, probabilities, column)
        self.options = options

    def assign(self, rows, carry=None):
        codes, values = coded(rows.columns[self.column])
        of = {letter: 1 for letter in self.options.validation} | {letter: 2 for letter in self.options.test}
        return np.array([of.get(str(value)[0], 0) for value in values], np.int8)[codes]
'''

SPLIT = "preprocessing:\n  split: {type: letters, column: city, validation: %s}\n"


@pytest.fixture
def run(place, distribution, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "distcore_letters_splitter.py").write_text(LETTERS)
    source = SPLITTER.format(version=1)
    distribution(tmp_path / "site", "distcore-letters", source, kind="splitters", entry="letters")

    return partial(place.beside, tmp_path / "site")


@pytest.mark.system
def test_a_splitter_from_outside_splits_with_its_own_options(place, run, distribution, tmp_path):
    plain = (place.folder / place.config).read_text()
    place.write(place.config, plain + SPLIT % "O")
    run(*place.words("experiment"))
    description = json.loads((place.results / "description.json").read_text())
    assert description["data"]["rows"] == {"train": 80, "validation": 80, "test": 80}
    run(*place.words("predict", "--model_path", place.results))
    planned = json.loads(run("plan", "--config", place.config, "--dataset", place.data, "--json"))
    assert planned["cache"]["state"] == "hit"
    assert ("splitters", "letters") in {(each["role"], each["name"]) for each in planned["plugins"]}
    place.write(place.config, plain + SPLIT % "OR")
    planned = json.loads(run("plan", "--config", place.config, "--dataset", place.data, "--json"))
    assert planned["cache"]["state"] == "miss"
    assert planned["dataset"]["split"] == "letters by city"
    schema = json.loads(run("schema"))
    assert "First letters of validation rows." in json.dumps(schema["$defs"])


@pytest.mark.parametrize(
    ("split", "said"),
    [
        (
            "{type: letters, column: city, validaton: O}",
            "unknown option 'validaton'; did you mean 'validation'?",
        ),
        ("{type: letters, column: city, validation: ''}", "should have at least 1 character"),
        ("{type: letters, column: city, probabilities: [1, 2, 3]}", "should sum to 1, not 6"),
        ("{type: leters, column: city}", "did you mean 'letters'?"),
    ],
)
def test_its_options_are_checked_by_line(place, run, split, said):
    lines = (place.folder / place.config).read_text().count("\n")
    config = (place.folder / place.config).read_text() + f"preprocessing:\n  split: {split}\n"
    place.write(place.config, config)
    told = run(*place.words("preprocess"), code=2)
    assert said in told
    assert f"line {lines + 2}" in told


@pytest.mark.parametrize(
    ("returned", "fault"),
    [
        ("found + 1", "gave a row the split 3, which is none of 0, 1 and 2"),
        ("found[1:]", "gave (239,) splits for 240 rows"),
    ],
)
def test_a_splitter_that_loses_rows_is_named(place, run, tmp_path, returned, fault):
    """They were left out of every split, and nothing said so."""
    place.write(place.config, (place.folder / place.config).read_text() + SPLIT % "O")
    faulty = (
        LETTERS.replace("return np.array(", "found = np.array(") + f"        return {returned}\n"
    )
    (tmp_path / "site" / "distcore_letters_splitter.py").write_text(faulty)
    told = run(*place.words("preprocess"), code=1)
    assert f"distcore_letters_splitter.Letters.assign {fault}." in told


def test_a_release_that_splits_otherwise_has_another_cache(place, run, distribution, tmp_path):
    place.write(place.config, (place.folder / place.config).read_text() + SPLIT % "O")
    run(*place.words("preprocess"))
    # Another length, too: bytecode counts for a source of the same length and second.
    released = SPLITTER.format(version=2) + "# the second release\n"
    (tmp_path / "site" / "distcore_letters.py").write_text(released)
    said = run(*place.words("preprocess"))
    assert "splitter letters with distcore-letters 1.0 (data version 1)" in said


def test_a_member_that_shadows_a_built_in_one_is_refused_by_both_names(
    place, run, distribution, tmp_path
):
    distribution(
        tmp_path / "site",
        "odd-random",
        SPLITTER.format(version=1),
        kind="splitters",
        entry="random",
    )
    said = run(*place.words("preprocess"), code=1)
    assert "Two distributions offer splitter 'random': distcore-data" in said
    assert "odd-random 1.0" in said
