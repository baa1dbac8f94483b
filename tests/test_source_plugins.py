"""A data format from outside: fixed-width text, read by a distribution that is installed beside
ours."""

import json
import sqlite3

import pytest

SOURCE = """
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)
DATA_VERSION = {version}

@hookimpl
def distcore_make_member(kind, name):
    if kind == "sources":
        from {package}_reader import FixedWidth

        return FixedWidth()
"""

READER = '''
import pyarrow as pa

from distcore_core.errors import DataError
from distcore_data.sources.held import TableFormat


class FixedWidth(TableFormat):
    """Columns begin where the words of the first line begin."""

    def table(self, path, shown):
        header, *lines = path.read_text().splitlines()
        names = header.split()
        starts = [header.index(name) for name in names]
        columns = {{name: [] for name in names}}
        for number, line in enumerate(lines, 2):
            if len(line) <= starts[-1]:
                raise DataError(f"{{shown}}, line {{number}}: it ends before the column {{names[-1]!r}}.")
            for name, start, stop in zip(names, starts, [*starts[1:], None]):
                columns[name].append(line[start:stop].strip(){more})
        return pa.table(columns)
'''


DATABASE = """
import sqlite3

import pyarrow as pa

from distcore_core.hooks import hookimpl
from distcore_data.sources.memory import FrameSource

DISTCORE_API = (1, 0)
DATA_VERSION = 1


class Database:
    folders, fetches = False, True

    def open(self, given, raw):
        return FrameSource(self.sample(given, -1), raw, given.options, given.shown)

    def sample(self, given, rows):
        path, _, table = given.dataset.partition("://")[2].rpartition("/")
        found = sqlite3.connect(path).execute(f"select * from {table} limit {rows}")
        names = [each[0] for each in found.description]
        return pa.table(dict(zip(names, map(list, zip(*found)))))


@hookimpl
def distcore_make_member(kind, name):
    if (kind, name) == ("sources", "sqlite"):
        return Database()
"""


class Installed:
    """Distributions in a folder of their own, and the command line that sees them."""

    def __init__(self, place, distribution, folder) -> None:
        self.place, self.distribution, self.folder = place, distribution, folder

    def reader(self, name="distcore-fwf", entry="fwf", version="1.0", data=1, more="") -> None:
        package = name.replace("-", "_")
        source = SOURCE.format(version=data, package=package)
        self.distribution(self.folder, name, source, kind="sources", entry=entry, version=version)
        (self.folder / f"{package}_reader.py").write_text(READER.format(more=more))

    def run(self, *words, code=0, **environment) -> str:
        return self.place.beside(self.folder, *words, code=code, **environment)


@pytest.fixture
def installed(place, distribution, tmp_path):
    return Installed(place, distribution, tmp_path / "site")


@pytest.fixture
def fixed(place, row):
    """The small dataset as fixed-width text."""
    lines = [
        f"{'age':<8}{'city':<8}bought",
        *(f"{age:<8}{city:<8}{bought}" for age, city, bought in map(row, range(240))),
    ]
    return place.write("data.fwf", "\n".join(lines) + "\n")


def key_of(place) -> set[str]:
    return {path.parent.name for path in (place.folder / ".distcore_cache").glob("*/manifest.json")}


@pytest.mark.system
def test_a_format_from_outside_is_read_listed_and_planned(place, installed, fixed):
    installed.reader()
    words = place.words("experiment", "--dataset", fixed)
    installed.run(*words)
    description = json.loads((place.results / "description.json").read_text())
    assert description["data"]["rows"]["train"] > 100
    assert ["distcore-fwf", "1.0"] in [
        [each["distribution"], each["version"]] for each in description["plugins"]
    ]
    model = place.results
    predicted = place.words("predict", "--model_path", model, "--dataset", fixed)
    installed.run(*predicted)
    rows = json.loads(installed.run("plugins", "--json"))
    assert ("sources", "fwf", "ok") in {(row["role"], row["name"], row["state"]) for row in rows}
    planned = json.loads(
        installed.run("plan", "--config", place.config, "--dataset", fixed, "--json")
    )
    [source] = [each for each in planned["plugins"] if each["role"] == "sources"]
    assert (source["name"], source["distribution"]) == ("fwf", "distcore-fwf")
    assert planned["cache"]["state"] == "hit"


def test_its_rows_are_those_of_csv(place, installed, fixed):
    installed.reader()
    installed.run(*place.words("preprocess", "--dataset", fixed))
    place.write("data.txt", fixed.read_bytes())
    installed.run(*place.words("preprocess", "--dataset", "data.txt", "--data_format", "fwf"))
    [key] = key_of(place)
    fitted = (place.folder / ".distcore_cache" / key / "train" / "00000.parquet").read_bytes()
    place.good("preprocess")
    [other] = key_of(place) - {key}
    assert (
        place.folder / ".distcore_cache" / other / "train" / "00000.parquet"
    ).read_bytes() == fitted


def test_a_release_that_reads_otherwise_misses_the_cache(place, installed, fixed, tmp_path):
    installed.reader()
    installed.run(*place.words("preprocess", "--dataset", fixed))
    installed.folder = tmp_path / "alike"
    installed.reader(version="1.1")
    assert "other versions" not in installed.run(*place.words("preprocess", "--dataset", fixed))
    assert len(key_of(place)) == 1
    installed.folder = tmp_path / "otherwise"
    installed.reader(version="2.0", data=2, more=".lower()")
    said = installed.run(*place.words("preprocess", "--dataset", fixed))
    assert (
        "data format fwf with distcore-fwf 1.0 (data version 1), now distcore-fwf 2.0 (data "
        "version 2)" in said
    )
    assert len(key_of(place)) == 2


def test_what_nobody_reads_names_what_is_installed(place, installed, fixed):
    assert "no installed plugin reads it. Installed are: arrow, csv," in place.refused(
        "preprocess", "--data_format", "fwf"
    )
    place.write("data.xlsx", b"PK\x03\x04" + bytes(200))
    said = place.refused("preprocess", "--dataset", "data.xlsx")
    assert "this is a zip archive (or an Excel workbook)" in said
    assert "nobody reads the ending .xlsx. Endings that are read: arrow, csv," in said
    installed.reader()
    unknown = place.words("preprocess", "--dataset", fixed, "--data_format", "fwd")
    assert "Did you mean 'fwf'?" in installed.run(*unknown, code=2)


def test_two_readers_of_one_ending_are_refused_by_both_names(place, installed, fixed):
    installed.reader()
    installed.reader("another-csv", "csv")
    said = installed.run(*place.words("preprocess"), code=1)
    assert "Two distributions offer data format 'csv': another-csv 1.0 and distcore-data" in said
    installed.run(*place.words("preprocess", "--dataset", fixed))


def test_an_error_of_a_reader_names_the_line(place, installed):
    installed.reader()
    short = place.write("short.fwf", f"{'age':<8}{'city':<8}bought\n20      Rome\n")
    said = installed.run(*place.words("preprocess", "--dataset", short), code=2)
    assert "short.fwf, line 2: it ends before the column 'bought'." in said


def test_an_address_is_read_by_the_plugin_of_its_scheme(place, installed, distribution, row):
    distribution(installed.folder, "distcore-sqlite", DATABASE, kind="sources", entry="sqlite")
    path = place.folder / "data.db"
    with sqlite3.connect(path) as database:
        database.execute("create table people (age real, city text, bought text)")
        database.executemany("insert into people values (?, ?, ?)", map(row, range(240)))
    installed.run(
        *place.words("preprocess", "--dataset", f"sqlite://{path}/people"),
        XDG_CACHE_HOME=str(place.folder / "cache"),
    )
    [source] = place.folder.glob("cache/distcore/*/train/00000.parquet")
    place.good("preprocess")
    [csv] = place.folder.glob(".distcore_cache/*/train/00000.parquet")
    assert source.read_bytes() == csv.read_bytes()


def test_no_reader_is_imported_but_the_one_asked_for(place, installed):
    installed.reader()
    readers = ("delimited", "parquet", "feather", "jsonlines")
    code = (
        "import sys, distcore; distcore.preprocess('config.yaml', 'data.csv');"
        f"print([name for name in {readers} if f'distcore_data.sources.{{name}}' in sys.modules], "
        "'distcore_fwf' in sys.modules)"
    )
    done = place.finish(place.python("-c", code, PYTHONPATH=str(installed.folder)))
    assert done.out.splitlines()[-1] == "['delimited'] False", done.out + done.err
