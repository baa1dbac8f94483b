"""A store from outside: objects in a database, by the scheme of an address that its distribution
offers."""

import json
from functools import partial

import pytest

STORE = '''
import os
import sqlite3
import tempfile
import time
from contextlib import closing

from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)


class Rows:
    """Objects as rows of a table. sqlite://NAME/FOLDER is a folder in the database $DATABASES/NAME."""

    def __init__(self, url):
        self.url = url
        name, _, self.folder = url.partition("://")[2].strip("/").partition("/")
        self.database = os.path.join(os.environ["DATABASES"], name)
        self.ask("create table if not exists objects (name text primary key, content blob, modified real)")

    def ask(self, query, *values):
        with closing(sqlite3.connect(self.database, timeout=60)) as database, database:
            cursor = database.execute(query, values)
            return cursor.fetchall(), cursor.rowcount

    def path(self, name):
        return f"{self.folder}/{name}"

    def where(self, name):
        return f"{self.url}/{name}"

    def list(self, prefix=""):
        from distcore_data.stores import Stat

        query = "select name, length(content), modified from objects where substr(name, 1, ?) = ?"
        start = self.path(prefix)
        rows, _ = self.ask(query, len(start), start)
        return {name[len(self.folder) + 1 :]: Stat(size, modified) for name, size, modified in rows}

    def read(self, name):
        rows, _ = self.ask("select content from objects where name = ?", self.path(name))
        if not rows:
            raise FileNotFoundError(name)
        return rows[0][0]

    def open(self, name, size, seen=None):
        content, file = self.read(name), tempfile.TemporaryFile()
        file.write(content)
        file.seek(0)
        if seen is not None:
            seen(0, content)
        return file

    def put(self, name, path):
        self.write(name, path.read_bytes())

    def write(self, name, content):
        self.ask("insert or replace into objects values (?, ?, ?)", self.path(name), content, time.time())

    def create(self, name, content):
        query = "insert or ignore into objects values (?, ?, ?)"
        return self.ask(query, self.path(name), content, time.time())[1] == 1

    def delete(self, names):
        for name in names:
            self.ask("delete from objects where name = ?", self.path(name))


@hookimpl
def distcore_make_member(kind, name, context):
    if kind == "stores" and name in ("sqlite", "sqlite_file"):
        return Rows(context["place"])
'''


@pytest.fixture
def run(place, distribution, tmp_path):
    """The command line with a store for sqlite:// beside ours."""
    distribution(tmp_path / "site", "distcore-rows", STORE, kind="stores", entry="sqlite")

    return partial(place.beside, tmp_path / "site", DATABASES=str(tmp_path))


@pytest.mark.system
def test_a_cache_and_results_lie_where_the_scheme_of_outside_says(place, run):
    config = (place.folder / place.config).read_text()
    place.write(
        place.config,
        config.replace("backend: local", "backend: {type: local, cache_dir: sqlite://one/cache}"),
    )
    data = ("--config", place.config, "--dataset", place.data)
    run("train", *data, "--output_directory", "sqlite://two/results")
    assert "hit" in run("plan", *data, "--json")
    assert not (place.folder / ".distcore_cache").exists()
    model = "sqlite://two/results/experiment_run"
    run(
        "predict", "--model_path", model, "--dataset", place.data, "--output_directory", "predicted"
    )
    assert list((place.folder / "predicted").rglob("predictions*"))
    listed = run("cache", "list", "--cache_dir", "sqlite://one/cache")
    assert "240" in listed
    assert "sqlite" in run("plugins")


def test_a_scheme_that_nobody_offers_names_those_that_are_installed(place, run):
    words = place.words(
        "preprocess", "--config_str", '{"backend": {"cache_dir": "sqlight://one/cache"}}'
    )
    said = run("cache", "list", "--cache_dir", "sqlight://one/cache", code=2)
    assert "sqlight:// is no store" in said
    assert "one of s3://, gs://, abfs://, file://, memory://, sqlite://." in said
    assert "sqlight:// is no store" in run(*words, code=2)


@pytest.mark.parametrize("address", ["sqlite:///one/cache", "sqlite_file:///one/cache"])
def test_an_address_without_a_bucket_is_its_store_s_own(
    place, run, distribution, tmp_path, address
):
    """As that of a file is: the part before the first slash is empty. The scheme is the plugin's
    name, also one with a `_`, which was taken for a folder."""
    distribution(tmp_path / "site", "more-rows", STORE, kind="stores", entry="sqlite_file")
    run("cache", "list", "--cache_dir", address)
    assert (tmp_path / "one").is_file()
    assert not list(place.folder.glob("sqlite*"))


def test_two_stores_of_one_scheme_are_refused_by_both_names(place, run, distribution, tmp_path):
    distribution(tmp_path / "site", "another-memory", STORE, kind="stores", entry="memory")
    said = run("cache", "list", "--cache_dir", "memory://one/cache", code=1)
    assert "Two distributions offer store 'memory': another-memory 1.0 and distcore-data" in said
    blocked = run(
        "cache", "list", "--cache_dir", "memory://one/cache", DISTCORE_BLOCK="another-memory"
    )
    assert "another-memory" not in blocked


@pytest.mark.system
def test_a_store_that_the_config_blocks_offers_no_scheme(place, run, distribution, tmp_path):
    distribution(tmp_path / "site", "another-rows", STORE, kind="stores", entry="sqlite")
    config = (place.folder / place.config).read_text()
    config = config.replace(
        "backend: local", "backend: {type: local, cache_dir: sqlite://one/cache}"
    )
    place.write(place.config, config)
    assert "Two distributions offer store 'sqlite'" in run(*place.words("train"), code=1)
    place.write(place.config, config + "plugins: {block: [another-rows]}\n")
    run(*place.words("train"))
    described = json.loads((place.results / "description.json").read_text())["plugins"]
    assert [each["distribution"] for each in described if each["kind"] == "stores"] == [
        "distcore-rows"
    ]
