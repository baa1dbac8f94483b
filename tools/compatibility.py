"""Which plugins work with this core: docs/compatibility.md, from what is tried here.

`python -m tools.compatibility` tries and writes it. tests/frozen holds a plugin of each interface
that was given to anybody, as the wheel of its day: it is installed beside this environment, each of
its plugins is loaded and its options read, and they make an experiment together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from distcore_core.contracts import API_VERSION
from distcore_core.errors import PluginError
from distcore_core.registry.lock import GROUPS
from distcore_core.registry.manager import Plugins
from distcore_testing import data

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
FROZEN = ROOT / "tests" / "frozen"

ASK = """
import json, sys
from importlib import metadata
from distcore_core.registry.manager import Plugins
found, plugins = [], Plugins()
for entry in metadata.distribution(sys.argv[1]).entry_points:
    kind, said, stated = entry.group.removeprefix("distcore."), "works", "?"
    try:
        stated = ".".join(map(str, plugins.load(kind, entry.name).DISTCORE_API))
        plugins.options_model(kind, entry.name, "input" if kind == "features" else "")
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    found.append([kind, entry.name, stated, said])
print(json.dumps(found))
"""
RUN = """
import json, sys
import pyarrow.parquet as parquet
import distcore
config, table, folder = json.loads(sys.argv[1]), parquet.read_table(sys.argv[2]), sys.argv[3]
outcome = distcore.experiment(config, table, output_directory=folder)
again = distcore.load(outcome.model).predict(table.slice(0, 5))
print(json.dumps({
    "model": str(outcome.model), "test": outcome.test_statistics,
    "training": outcome.training_statistics, "columns": again.schema.names,
    "k": again["k_predictions"].to_pylist(), "z": again["z_predictions"].to_pylist(),
}))
"""
HEAD = """# What was tried together
Written by `python -m tools.compatibility` from what it tries; `tests/test_frozen_plugin.py` says
if it is out of date. What may be expected is in [the policy](policy.md). This is of plugins and
cores. What of a Ludwig config runs is in the [README](../README.md#ten-lines-of-config),
[the defaults beside Ludwig's](defaults.md) and [hyperopt](hyperopt.md); `distcore plan` of one that
you have tells all that is not carried out.

Interfaces so far: {versions}. A row is a plugin, a column a core. Nothing was released yet, so
there is one core, the one of this tree. Each release adds a column, and a row for a plugin that is
frozen as it was built that day; the cores of the last two interfaces stay.

## Plugins that are not built again
| plugin | what | written for | core of API {core} |
|---|---|---|---|
"""
OWN = """
## Plugins of this workspace
Their suites, in `make test` and `make clusters`, try them with the core that they are built with;
this says what they state, and that they load.

| distribution | groups of entry points | written for | core of API {core} |
|---|---|---|---|
"""


def wheels() -> list[Path]:
    """Of the frozen plugins, in the order of their versions."""
    return sorted(FROZEN.glob("*.whl"))


def install(wheel: Path, folder: Path) -> None:
    """Put the wheel beside this environment, as pip does."""
    words = ["--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run(
        [sys.executable, "-m", "pip", *words, "--target", str(folder), str(wheel)], check=True
    )


def said_beside(folder: Path, code: str, *words: str) -> Any:
    """The JSON in the last line that the code prints, run where the folder's plugins are seen.

    Raises:
        RuntimeError: It failed; with what it said.
    """
    paths = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def experiment(installed: Path, folder: Path) -> Any:
    """What an experiment says whose trainer, cache format and feature are the frozen plugin's.

    Raises:
        RuntimeError: It failed.
    """
    outputs = [{"name": "k", "type": "category"}, {"name": "z", "type": "number"}]
    config = data.config(str(folder / "cache"), output_features=outputs)
    config["input_features"].append({"name": "wind", "type": "frozen_angle", "offset": 90})
    config["backend"] |= {
        "cache_format": "frozen_ipc",
        "trainer": {"type": "frozen_mean", "shrink": 0.0},
    }
    table = data.table().append_column(
        "wind", pa.array([None if each % 50 == 0 else float(each) for each in range(600)])
    )
    pyarrow.parquet.write_table(table, folder / "data.parquet")
    places = (str(folder / "data.parquet"), str(folder / "results"))
    return said_beside(installed, RUN, json.dumps(config), *places)


def rows_of(wheel: Path, installed: Path, ran: bool) -> list[str]:
    """The table's rows of a frozen plugin. ran: whether it made its experiment."""
    name, version = wheel.name.split("-")[:2]
    found = said_beside(installed, ASK, name.replace("_", "-"))
    known = {"works": "works, in an experiment" if ran else "loads; its experiment failed"}
    return [
        f"| {name.replace('_', '-')} {version} | {kind}: `{entry}` | {stated} "
        f"| {known.get(said, said)} |"
        for kind, entry, stated, said in sorted(found)
    ]


def own_rows() -> list[str]:
    """Of the distributions of this workspace."""
    places = [*ROOT.glob("toolkits/*"), *ROOT.glob("plugins/*"), ROOT]
    projects = [each / "pyproject.toml" for each in places if (each / "pyproject.toml").is_file()]
    names = sorted(tomllib.loads(path.read_text())["project"]["name"] for path in projects)
    entries = {
        name: [
            (each.group.removeprefix(GROUPS), each.name)
            for each in metadata.distribution(name).entry_points
            if each.group.startswith(GROUPS)
        ]
        for name in names
    }
    return [_own_row(name, found) for name, found in entries.items() if found]


def _own_row(name: str, entries: list[tuple[str, str]]) -> str:
    plugins, states, versions = Plugins(), set(), set()
    for kind, entry in entries:
        try:
            module: Any = plugins.load(kind, entry)
            versions.add(".".join(map(str, module.DISTCORE_API)))
            states.add("loads")
        except PluginError as error:
            states.add(str(error))
    kinds = sorted({kind for kind, _ in entries})
    return f"| {name} | {', '.join(kinds)} | {', '.join(versions)} | {'; '.join(sorted(states))} |"


def page(frozen: list[str]) -> str:
    """The whole page. frozen: the rows of the frozen plugins."""
    core = ".".join(map(str, API_VERSION))
    interfaces = ", ".join(f"{API_VERSION[0]}.{minor}" for minor in range(API_VERSION[1] + 1))
    lines = [HEAD.format(versions=interfaces, core=core), "\n".join(frozen), "\n"]
    return "".join([*lines, OWN.format(core=core), "\n".join(own_rows()), "\n"])


def main() -> int:
    """Try everything, and write the page."""
    rows = []
    for wheel in wheels():
        with tempfile.TemporaryDirectory() as folder:
            installed = Path(folder, "installed")
            install(wheel, installed)
            try:
                ran = bool(experiment(installed, Path(folder)))
            except RuntimeError as error:
                print(error, file=sys.stderr)
                ran = False
            rows += rows_of(wheel, installed, ran)
    PAGE.write_text(page(rows), "utf-8")
    print(f"Wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
