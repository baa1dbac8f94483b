"""The quality scale: what suites say of a plugin is recorded in its manifest, and shown as long as
its files are those that were tried."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from distcore.cli.main import main
from distcore_testing import quality, templates
from distcore_testing.installed import lay_metadata

PACKAGE = "distcore_quality_of_others"
DISTRIBUTION = "distcore-quality-of-others"


class Made:
    """A new splitter, installed beside this environment."""

    def __init__(self, place, folder) -> None:
        self.place, self.folder, self.site = place, folder, folder / "src"
        words = ["--role", "splitter", "--directory", str(folder)]
        assert main(["new-plugin", DISTRIBUTION, *words]) == 0
        offers = {"splitters": {"quality_of_others": f"{PACKAGE}.plugin"}}
        info = lay_metadata(self.site, DISTRIBUTION, offers, "0.1.0")
        with (info / "METADATA").open("a") as file:
            file.write("\n" + (folder / "README.md").read_text())
        (info / "RECORD").write_text(f"{PACKAGE}/distcore.json,,\n")

    def grade(self, *tests: str) -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join([str(self.site), *filter(None, sys.path)])
        return subprocess.run(
            [sys.executable, "-m", "distcore_testing.quality", DISTRIBUTION, *(tests or ["tests"])],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        )

    @property
    def manifest(self) -> dict:
        return json.loads((self.site / PACKAGE / "distcore.json").read_text())

    def shown(self) -> str:
        """What `distcore plugins` says of its tier."""
        rows = json.loads(self.place.beside(self.site, "plugins", "--json"))
        return next(row["quality"] for row in rows if row["distribution"] == DISTRIBUTION)


@pytest.fixture
def made(place, tmp_path):
    return Made(place, tmp_path / "made")


def test_a_new_plugin_is_gold_until_a_file_of_it_changes(made):
    done = made.grade()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "distcore-quality-of-others: gold" in done.stdout
    recorded = made.manifest["quality"]
    assert (recorded["tier"], len(recorded["files"]), len(recorded["tests"])) == ("gold", 64, 64)
    assert made.shown() == "gold"
    assert "QUALITY" in made.place.beside(made.site, "plugins")
    with open(made.site / PACKAGE / "splitter.py", "a") as file:
        file.write("\n# one more line\n")
    assert made.shown() == ""
    assert "QUALITY" not in made.place.beside(made.site, "plugins")


def test_a_tier_that_is_none_is_not_shown(made):
    manifest = made.manifest
    manifest["quality"] = {"tier": "platinum", "files": "x"}
    (made.site / PACKAGE / "distcore.json").write_text(json.dumps(manifest))
    assert made.shown() == ""


@pytest.mark.parametrize(
    ("name", "old", "new", "tier", "said"),
    [
        ("splitter.py", "carry: Any = None)", "carry=None)", "bronze", "assign is not annotated"),
        ("plugin.py", "DATA_VERSION = 1\n", "", "silver", "states no DATA_VERSION"),
        (
            "plugin.py",
            '    """The splitter, if',
            '    assert """The splitter, if',
            "silver",
            "has no",
        ),
        ("splitter.py", "/ 2**32", "/ 2**31", "", "fails"),
    ],
)
@pytest.mark.slow
def test_what_does_not_hold_is_said_and_lowers_the_tier(made, name, old, new, tier, said):
    path = made.site / PACKAGE / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    subprocess.run(
        [sys.executable, "-m", "distcore_testing.manifest", DISTRIBUTION],
        check=True,
        env={**os.environ, "PYTHONPATH": str(made.site)},
    )
    done = made.grade()
    assert said in done.stdout, done.stdout
    assert made.manifest.get("quality", {}).get("tier", "") == tier
    assert done.returncode == (0 if tier else 1)


RUN = quality.Run(passed={("PluginSuite", "splitters", "s"), ("ManifestSuite", "", "d")})


def plugin(**changes):
    offer = {"data_version": "1", "options": {"": {"properties": {"a": {"description": "A."}}}}}
    given = {
        "distribution": "d",
        "offers": [("splitters", "s")],
        "manifest": {"offers": {"splitters": {"s": offer}}},
        "modules": {},
        "run": RUN,
    }
    return quality.Plugin(**given | changes)


def test_each_rule_says_why_it_does_not_hold():
    assert quality.suites(plugin()) == "no SplitterSuite passed for splitters s"
    assert quality.suites(plugin(offers=[("features", "f")])).startswith("no PluginSuite passed")
    assert quality.suites(plugin(offers=[])) == ""
    assert quality.manifest(plugin()) == ""
    assert quality.manifest(plugin(distribution="e")) == "no ManifestSuite passed"
    assert quality.types(plugin()) == "the package has no py.typed"
    assert quality.options(plugin()) == quality.data_version(plugin()) == ""
    bare = {"data_version": None, "options": {"": {"properties": {"a": {}}}}}
    told = plugin(manifest={"offers": {"splitters": {"s": bare}}})
    assert quality.options(told) == "splitters s: the option a has no description"
    assert quality.data_version(told) == "splitters s states no DATA_VERSION"
    assert quality.warnings(plugin(run=quality.Run(warned=["UserWarning: x"]))) == "UserWarning: x"
    assert quality.suites(plugin(run=quality.Run(broken=["test_a"]))) == "test_a fails"


IN_A_SUITE = """
from distcore_testing import SplitterSuite


class TestSplitter(SplitterSuite):
    name, column = "random", None
"""
LEFT_OUT = "test_every_row_has_a_split"


@pytest.mark.parametrize(
    ("more", "words", "said"),
    [
        ("", [], ""),
        (f"    def {LEFT_OUT}(self):\n        pass\n", [], f"{LEFT_OUT} of SplitterSuite"),
        ("", ["-k", f"not {LEFT_OUT}"], f"{LEFT_OUT} of SplitterSuite"),
        ("\ndef test_it():\n    raise KeyboardInterrupt\n", [], "INTERRUPTED"),
        ("\nimport nowhere\n", [], "INTERRUPTED"),
    ],
)
def test_a_suite_that_was_not_run_whole_counts_for_nothing(more, words, said, tmp_path):
    (tmp_path / "test_it.py").write_text(IN_A_SUITE + more)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    code = """
import sys
from distcore_testing import quality
run = quality.run_of(sys.argv[1:])
run.passed.add(("PluginSuite", "splitters", "random"))
print("FOUND" + quality.suites(quality.Plugin("d", [("splitters", "random")], {}, {}, run)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), *words], capture_output=True, text=True
    )
    found = done.stdout.rpartition("FOUND")[2].strip()
    assert (said in found) if said else not found, done.stdout + done.stderr


def test_what_is_not_installed_is_not_tried(capsys):
    assert quality.main("distcore-nowhere", ["tests"]) == 1
    assert "distcore-nowhere cannot be tried" in capsys.readouterr().err


def test_every_suite_of_a_role_is_asked_for():
    """Those that are of no entry point apart."""
    asked = {each for suites in quality.SUITES.values() for each in suites}
    others = {"PluginSuite", "ManifestSuite", "StrategySuite"}
    assert asked | others == set(quality.distcore_testing.__all__)
    kinds = {templates.read(each).kind for each in templates.roles()}
    assert set(quality.SUITES) | set(quality.ENCODING) <= kinds
