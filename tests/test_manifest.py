"""Plugins with a static manifest are listed and described without being imported; the suite tells
when a manifest is not what the code says."""

import json
import sys
from importlib import metadata

import pytest
from tools import manifests

from distcore_testing import ManifestSuite
from distcore_testing.installed import lay_metadata
from distcore_testing.manifest import manifest_of, place_of

HOOK = """
import os, sys

def heard(event, arguments):
    if event == "exec" and "/dummy_" in getattr(arguments[0], "co_filename", ""):
        with open(os.environ["HEARD"], "a") as file:
            file.write(arguments[0].co_filename + "\\n")

sys.addaudithook(heard)
"""
CODE = """
from distcore_core.plugin import hookimpl
from pydantic import BaseModel, ConfigDict, Field, model_validator

DISTCORE_API = (1, 0)
DATA_VERSION = 7


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    depth: int = 1


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = Field(3, ge=1, description="How large a dummy is.")
    inner: Inner = Inner()


class Nothing(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def refuse(cls, values):
        raise ValueError("only an input")


@hookimpl
def distcore_options_model(kind, name, role):
    return Nothing if role == "output" else Options
"""
KINDS = ("features", "trainers", "extensions", "caches", "processors")


class Site:
    """A folder of distributions `dummy-N`, each a package with one entry point."""

    def __init__(self, place, folder) -> None:
        self.place, self.folder, self.heard = place, folder, folder.parent / "heard"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(HOOK)

    def install(self, number: int, manifest: object = None, kind: str = "") -> str:
        """Lay down one; its name. manifest: a text, or what JSON is made of."""
        package, kind = f"dummy_{number}", kind or KINDS[number % len(KINDS)]
        lay_metadata(self.folder, f"dummy-{number}", {kind: {package: f"{package}.plugin"}})
        (self.folder / package).mkdir()
        (self.folder / package / "__init__.py").write_text("")
        (self.folder / package / "plugin.py").write_text(CODE)
        if manifest is not None:
            text = manifest if isinstance(manifest, str) else json.dumps(manifest)
            (self.folder / package / "distcore.json").write_text(text)
        return package

    def run(self, *words, code=0) -> str:
        return self.place.beside(self.folder, *words, code=code, HEARD=str(self.heard))

    def imported(self) -> set[str]:
        """The files of dummies that any process executed since this was last asked."""
        found = set(self.heard.read_text().split()) if self.heard.exists() else set()
        self.heard.unlink(missing_ok=True)
        return found


@pytest.fixture
def site(place, tmp_path):
    return Site(place, tmp_path / "site")


@pytest.fixture
def manifest(tmp_path, place, monkeypatch):
    """manifest(number, kind): what the code of a dummy of that number says."""
    other = Site(place, tmp_path / "other")
    monkeypatch.syspath_prepend(str(other.folder))

    def make(number: int, kind: str = "") -> dict:
        other.install(number, kind=kind)
        return manifest_of(f"dummy-{number}")

    yield make
    for name in [each for each in sys.modules if each.startswith("dummy_")]:
        del sys.modules[name]


def test_two_hundred_are_listed_described_and_a_config_is_validated_without_importing_one(
    site, manifest, place
):
    options = {kind: manifest(900 + number, kind) for number, kind in enumerate(KINDS)}
    for number in range(200):
        kind = KINDS[number % len(KINDS)]
        text = json.dumps(options[kind]).replace(
            f"dummy_{900 + KINDS.index(kind)}", f"dummy_{number}"
        )
        site.install(number, text)
    rows = json.loads(site.run("plugins", "--json"))
    dummies = [row for row in rows if row["distribution"].startswith("dummy-")]
    assert len(dummies) == 200
    assert {row["state"] for row in dummies} == {"ok"}
    schema = json.loads(site.run("schema"))
    assert "How large a dummy is." in json.dumps(schema["$defs"]["features.dummy_0.input"])
    assert "features.dummy_0.output" not in schema["$defs"]
    assert "dummy_1" in json.dumps(schema["properties"]["backend"])
    site.run("plan", "--config", place.config, "--dataset", place.data, "--json")
    assert site.imported() == set()
    site.install(200)  # without a manifest it is imported, which the hook hears
    site.run("plugins")
    assert {path.split("/")[-2] for path in site.imported()} == {"dummy_200"}


def test_the_schema_is_the_same_with_a_manifest_and_without(site, manifest):
    """One of each kind."""
    for number, kind in enumerate(KINDS):
        site.install(number, kind=kind)
    without = site.run("schema")
    heard = {f"dummy_{number}" for number in range(len(KINDS))}
    assert {path.split("/")[-2] for path in site.imported()} == heard
    for number, kind in enumerate(KINDS):
        path = site.folder / f"dummy_{number}" / "distcore.json"
        path.write_text(json.dumps(manifest(number, kind)))
    assert site.run("schema") == without
    assert all(name in without for name in heard)
    assert not site.imported()


def test_one_of_another_api_is_broken_without_being_imported(site, manifest):
    site.install(1, manifest(1, "trainers") | {"api": [9, 0]}, "trainers")
    rows = json.loads(site.run("plugins", "--json"))
    [row] = [row for row in rows if row["distribution"] == "dummy-1"]
    assert row["state"] == "broken"
    assert "dummy-1 1.0 was written for distcore API 9.0" in row["error"]
    assert not site.imported()


@pytest.mark.parametrize("kind", ["trainers", "features"])
def test_one_whose_module_is_gone_is_broken_without_being_imported(site, manifest, kind):
    site.install(1, manifest(1, kind), kind)
    (site.folder / "dummy_1" / "plugin.py").unlink()
    rows = json.loads(site.run("plugins", "--json"))
    [row] = [row for row in rows if row["distribution"] == "dummy-1"]
    assert row["state"] == "broken"
    assert row["error"] == "dummy_1.plugin is missing; reinstall dummy-1"
    assert not site.imported()


@pytest.mark.parametrize("text", ["", "[1]", '{"api": [1, 0], "offers": {}}', "[" * 100_000])
def test_a_manifest_that_says_nothing_of_the_plugin_is_as_none(site, text):
    site.install(1, text, "trainers")
    rows = json.loads(site.run("plugins", "--json"))
    [row] = [row for row in rows if row["distribution"] == "dummy-1"]
    assert row["state"] == "ok"
    assert site.imported()


def test_each_of_our_own_distributions_has_one_to_write_for_its_wheel():
    """`make wheels` lays them beside the code for that long."""
    found = list(manifests.names())
    assert {"distcore", "distcore-tabular", "distcore-local", "distcore-data"} <= set(found)
    for name in found:
        made = json.loads(json.dumps(manifest_of(name)))
        offers = [(kind, each) for kind, names in made["offers"].items() for each in names]
        entries = metadata.distribution(name).entry_points
        groups = [each for each in entries if each.group.startswith("distcore.")]
        assert sorted(offers) == sorted(
            (each.group.removeprefix("distcore."), each.name) for each in groups
        )
        assert not place_of(name).exists(), "left behind: python -m tools.manifests remove"


@pytest.mark.parametrize("wrong", ["options", "data_version", "api", "missing"])
def test_the_suite_tells_a_manifest_that_is_not_what_the_code_says(tmp_path, manifest, wrong):
    good = manifest(1, "features")
    assert good["offers"]["features"]["dummy_1"]["data_version"] == "7"
    assert set(good["offers"]["features"]["dummy_1"]["options"]) == {"input"}
    path = tmp_path / "other" / "dummy_1" / "distcore.json"
    path.write_text(json.dumps(good))

    class Suite(ManifestSuite):
        distribution = "dummy-1"

    Suite().test_the_manifest_is_what_the_code_says()
    if wrong == "api":
        good["api"] = [1, 1]
    elif wrong != "missing":
        good["offers"]["features"]["dummy_1"][wrong] = None
    path.write_text(json.dumps(good))
    if wrong == "missing":
        path.unlink()
    with pytest.raises(AssertionError, match=r"python -m distcore_testing.manifest dummy-1"):
        Suite().test_the_manifest_is_what_the_code_says()
