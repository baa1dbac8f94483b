"""`distcore new-plugin` writes a package for each role whose suite passes as it is."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from distcore_core.contracts import ROLES, Resources
from distcore_testing import CommandSuite, PluginSuite, templates
from distcore_testing.installed import lay_metadata

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
DECLARED = {
    "distcore_core.plugin",
    "distcore_core.config.upgrade",
    "distcore_data",
    "distcore_torch",
    "distcore_search",
    "distcore_testing",
}
"""What an author imports of ours (docs/plugins.md)."""

QUICK = ["cache-format", "command", "report-section", "source", "splitter"]
"""Roles whose suites take a few seconds; the others train, or start processes."""

TABULAR = ("encoders", "decoders", "losses", "metrics", "tokenizers", "combiners")
KINDS = {
    *ROLES,
    *("sources", "stores", "splitters", "optimizers", "schedules", "callbacks", "report_sections"),
    *(f"tabular.{each}" for each in TABULAR),
}
"""Every entry-point group of core, the toolkits and our plugins."""


class TestPlugin(PluginSuite):
    kind, name = "commands", "new-plugin"


class TestCommand(CommandSuite):
    """The folder that it makes is there the second time."""

    name, repeats = "new-plugin", False

    def words(self, folder):
        return ["distcore-wind", "--role", "feature"]

    def mistake(self, folder):
        return ["distcore-wind", "--role", "feeture"]


def package_of(role: str) -> str:
    return f"distcore-{role}-of-others"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with a new package of every role, made by the command."""
    from distcore.cli.main import main

    folder = tmp_path_factory.mktemp("new")
    for role in templates.roles():
        directory = folder / package_of(role)
        assert (
            main(["new-plugin", package_of(role), "--role", role, "--directory", str(directory)])
            == 0
        )
    return folder


def installed(folder: Path, roles: list[str]) -> Path:
    """The packages beside this environment, as pip would put them there."""
    site = folder / "site"
    for role in roles:
        source = folder / package_of(role) / "src"
        project = tomllib.loads((source.parent / "pyproject.toml").read_text())["project"]
        shutil.copytree(source, site, dirs_exist_ok=True)
        offers = {
            group.removeprefix("distcore."): entries
            for group, entries in project["entry-points"].items()
        }
        info = lay_metadata(site, project["name"], offers, project["version"])
        files = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
        (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))
    return site


def run(folder: Path, site: Path, *words: str) -> str:
    """What a module of Python's says that sees what is in `site`; it ends well."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    return done.stdout


def source_of(role: str, name: str) -> dict[str, Any]:
    """What a module of a new package of the role has."""
    names = templates.Names(package_of(role), templates.of_role(role))
    found = {Path(path).name: text for path, text in templates.files(names).items()}
    made = {"__name__": names.package}
    exec(compile(found[name], name, "exec"), made)
    return made


def test_threads_may_share_the_written_predictor():
    """The first that was done turned dropout on for the answers of the others."""
    inside, over = threading.Event(), threading.Event()

    class Slow(torch.nn.Module):
        """Of one output, which is a row of ones."""

        def __init__(self):
            super().__init__()
            self.drop, self.networks = torch.nn.Dropout(0.5), {"y": SimpleNamespace(output=first)}
            self.features = SimpleNamespace(metadata={"y": None})

        def forward(self, batch):
            if batch == "slow":
                inside.set()
                assert over.wait(60)
            return {"y": self.drop(torch.ones(64))}

    def first(logits, metadata):
        return logits

    predictor = source_of("trainer", "model.py")["LinearPredictor"](Slow().eval())
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(predictor.predict, "slow")
        assert inside.wait(60)
        predictor.predict("fast")
        over.set()
        assert (slow.result()["y"] == 1).all()


@pytest.mark.parametrize(("cpus", "workers", "wanted"), [(2, None, 2), (64, None, 8), (64, 12, 12)])
def test_a_written_strategy_has_no_more_ranks_than_the_loader_can_serve(cpus, workers, wanted):
    found = source_of("strategy", "trainer.py")["_workers"]
    backend = SimpleNamespace(resources=lambda: Resources(cpus=cpus, workers=workers or 0))
    assert found(backend) == wanted


def test_every_role_has_a_template():
    assert {templates.read(each).kind for each in templates.roles()} == KINDS


def test_the_written_store_makes_no_file_to_read_and_tells_of_one_that_it_cannot_open(tmp_path):
    names = templates.Names("distcore-wind", templates.of_role("store"))
    module: dict[str, Any] = {}
    exec(templates.files(names)["src/distcore_wind/store.py"], module)

    def store(path: Path) -> Any:
        return module["WindStore"](f"wind://{path}", None)

    absent = store(tmp_path / "absent" / "objects.db")
    assert absent.list() == {}
    with pytest.raises(FileNotFoundError):
        absent.read("a")
    absent.delete(["a"])
    assert not list(tmp_path.iterdir())
    absent.write("a", b"1")
    assert absent.read("a") == b"1"
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(OSError, match=r"folder\.db: unable to open"):
        store(tmp_path / "folder.db").read("a")


@pytest.mark.system
def test_the_suites_of_what_is_written_pass(written):
    """Of the quick ones, in one process; each by itself, and as pip installs it, in the sweep."""
    words = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-c", os.devnull]
    words += [f"--rootdir={written}", "-W", "error::DeprecationWarning", "--tb=short"]
    run(written, installed(written, QUICK), "pytest", *words, *map(package_of, QUICK))


@pytest.mark.slow
@pytest.mark.parametrize("role", templates.roles())
def test_what_is_written_is_gold_after_pip_installed_it(written, tmp_path, role):
    words = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    place = ["--target", str(tmp_path / "site"), str(written / package_of(role))]
    run(tmp_path, tmp_path, "pip", "--disable-pip-version-check", *words, *place)
    name, tests = package_of(role), str(written / package_of(role) / "tests")
    said = run(written / name, tmp_path / "site", "distcore_testing.quality", name, tests)
    assert said.endswith(f"{name}: gold\n"), said


def test_what_is_written_is_clean(written):
    """As its CI asks: ruff and its formatter, by the settings of each."""
    for words in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [BIN / "ruff", *words, "--no-cache", *map(package_of, templates.roles())],
            cwd=written,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["a", "knn", "zebra-in-the-long-grass"])
def test_a_new_trainer_passes_its_ci_s_ruff_by_any_name(tmp_path, monkeypatch, name):
    """Names are sorted in imports: by one that begins before L, ruff had something to say."""
    from distcore.cli.main import main

    monkeypatch.chdir(tmp_path)
    assert main(["new-plugin", f"distcore-{name}", "--role", "trainer"]) == 0
    done = subprocess.run(
        [BIN / "ruff", "check", "--no-cache", "."], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "roles",
    [
        pytest.param(["command", "config-upgrade"], marks=pytest.mark.system),
        pytest.param(list(templates.roles()), marks=pytest.mark.slow),
    ],
)
def test_what_is_written_is_typed(written, roles):
    """mypy, by the settings that each is given, which are the same."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--cache-dir", str(written / "mypy")),
            *("--config-file", f"{package_of(roles[0])}/pyproject.toml"),
            *(f"{package_of(each)}/src/{package_of(each).replace('-', '_')}" for each in roles),
        ],
        cwd=written,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_imports_what_is_declared_and_is_short(written):
    for role in templates.roles():
        lines = 0
        for path in (written / package_of(role)).rglob("*.py"):
            text = path.read_text()
            lines += len(text.splitlines()) if "src" in path.parts else 0
            nodes = list(ast.walk(ast.parse(text)))
            found = {each.module for each in nodes if isinstance(each, ast.ImportFrom)}
            ours = {each for each in found if each and each.startswith("distcore_")}
            own = package_of(role).replace("-", "_")
            assert {each for each in ours if not each.startswith(own)} <= DECLARED, path
        assert lines <= 275, f"{role} has {lines} lines"


def test_a_name_without_our_prefix_is_the_one_in_the_config(tmp_path):
    names = templates.Names("acme-wind-speed", templates.of_role("feature"))
    assert (names.package, names.entry) == ("acme_wind_speed", "acme_wind_speed")
    names = templates.Names("distcore-wind-speed", templates.of_role("tabular.encoders"))
    assert (names.package, names.entry) == ("distcore_wind_speed", "number.wind_speed")


@pytest.mark.parametrize(
    ("version", "wanted"),
    [("0.1.0", ">=0.1,<0.2"), ("1.0.0", ">=1.0,<2"), ("1.13.2rc1", ">=1.13,<2")],
)
def test_the_cores_that_it_names_end_before_the_next_that_may_break_it(
    monkeypatch, version, wanted
):
    """As docs/policy.md says."""
    monkeypatch.setattr(templates.metadata, "version", lambda name: version)
    assert templates.within("distcore-core") == f"distcore-core{wanted}"
    assert templates.within("distcore-testing", "[data]") == f"distcore-testing[data]{wanted}"
    assert templates.within("numpy>=2.0") == "numpy>=2.0"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["distcore-wind", "--role", "feture"], "no role 'feture'. Did you mean 'feature'?"),
        (["distcore-wind", "--role", "cache"], "no role 'cache'. Did you mean 'cache-format'?"),
        (["distcore-wind", "--role", "pigeon"], "Roles: backend, "),
        (["distcore-wind"], "--role: say what it is. Roles: backend, "),
        (["Distcore Wind", "--role", "feature"], "lower-case letters"),
        (["wind-", "--role", "feature"], "lower-case letters"),
        (["9wind", "--role", "feature"], "a letter first"),
        (["distcore-2wind", "--role", "store"], "a letter first, also after distcore-"),
        (["distcore-none", "--role", "source"], "None is Python's own"),
        (["json", "--role", "feature"], "json is Python's own"),
        (["distcore-number", "--role", "feature"], "is there already: distcore-tabular"),
        (["pyarrow", "--role", "feature"], "the installed package pyarrow"),
        (["distcore-wind", "--role", "feature", "--directory", "data.csv"], "is there already"),
        (["distcore-wind", "--role", "feature", "--directory", "data.csv/x"], "cannot be written"),
    ],
)
def test_what_cannot_be_made_is_refused_and_nothing_is_written(place, words, said):
    before = place.listing()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, "words", lambda *given: [*map(str, given)])
        done = place.run("new-plugin", *words)
    assert done.code == 2
    assert said in done.err
    assert place.listing() == before


def test_the_folder_in_contrib_is_what_the_command_writes(tmp_path):
    """It is there to be read; write it again with the command if a template changed."""
    made = tmp_path / "made"
    words = ["new-plugin", "distcore-lines", "--role", "extension", "--directory", str(made)]
    # A process of its own: this one may have seen contrib's as installed, beside its tests.
    subprocess.run([sys.executable, "-m", "distcore", *words], check=True, capture_output=True)
    kept = ROOT / "contrib" / "plugin_template"
    left_out = {"__pycache__", ".ruff_cache", ".mypy_cache", "build", "distcore_lines.egg-info"}

    def contents(folder: Path) -> dict[str, str]:
        return {
            str(path.relative_to(folder)): path.read_text()
            for path in folder.rglob("*")
            if path.is_file() and not left_out & set(path.relative_to(folder).parts)
        }

    assert contents(made) == contents(kept)
