"""The laws on imports: what the command line must not load, and what a local run must never load."""

import json
import subprocess
import sys

import pytest

HEAVY = {
    "torch",
    "numpy",
    "pandas",
    "pyarrow",
    "ray",
    "dask",
    "distributed",
    "modin",
    "horovod",
    "tensorflow",
    "pydantic",
    "stevedore",
}
ENGINES = {"ray", "dask", "distributed", "modin", "horovod", "tensorflow"}


def modules_after(code: str) -> set[str]:
    """Top-level modules loaded by a fresh interpreter after the code ran."""
    script = f"import sys, json\n{code}\nprint('MODULES' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert "MODULES" in done.stdout, done.stderr
    return {name.partition(".")[0] for name in json.loads(done.stdout.rpartition("MODULES")[2])}


COMMANDS = [
    "",
    "experiment",
    "train",
    "preprocess",
    "evaluate",
    "test",
    "predict",
    "plan",
    "init",
    "plugins",
    "doctor",
    "schema",
    "report",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_nothing_heavy(command: str) -> None:
    words = [*command.split(), "--help"]
    code = f"from distcore.cli import main\ntry: main({words!r})\nexcept SystemExit: pass"
    assert not modules_after(code) & HEAVY


def test_import_distcore_loads_nothing_heavy() -> None:
    assert not modules_after("import distcore; dir(distcore)") & HEAVY


def test_plugin_modules_load_nothing_heavy() -> None:
    """Every plugin.py may be imported while detecting or listing, so it must stay light."""
    loaded = modules_after("import distcore_local.plugin, distcore_parquet.plugin, distcore_tabular.plugin")
    assert not loaded & (HEAVY - {"stevedore"})


def test_preprocessing_loads_neither_torch_nor_pandas(tmp_path) -> None:
    code = preprocess_code(tmp_path)
    assert not modules_after(code) & ({"torch", "pandas"} | ENGINES)


def test_a_local_experiment_loads_no_engine_and_no_compiler(tmp_path) -> None:
    """Whatever imports sympy has imported torch's compiler: a second of every start, for nothing."""
    code = preprocess_code(tmp_path).replace(
        "distcore.preprocess(config, dataset=data)", "distcore.experiment(config, dataset=data, output_directory=out)"
    )
    assert not modules_after(code) & (ENGINES | {"sympy"})


def preprocess_code(folder) -> str:
    """Code that preprocesses a small CSV file (making a frame would itself import pandas through pyarrow)."""
    lines = ["x,c,y", *(f"{i % 17 / 3},{'ab'[i % 2]},{i % 3 == 0}" for i in range(200))]
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    return f"""
import distcore
data, out = {str(folder / "data.csv")!r}, {str(folder)!r}
config = {{
    "input_features": [{{"name": "x", "type": "number"}}, {{"name": "c", "type": "category"}}],
    "output_features": [{{"name": "y", "type": "binary"}}],
    "trainer": {{"epochs": 1, "batch_size": 32}},
    "backend": {{"type": "local", "cache_dir": out + "/cache"}},
}}
distcore.preprocess(config, dataset=data)
"""


def test_no_module_takes_the_place_of_what_its_package_offers() -> None:
    """Importing `package.name` sets that attribute: a function of the name would be a module from then on."""
    import ast
    from pathlib import Path

    for init in Path(__file__).parent.parent.glob("*/**/src/**/__init__.py"):
        tree = ast.parse(init.read_text())
        names = {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.ClassDef)}
        modules = {
            each.stem for each in (*init.parent.glob("*.py"), *(each.parent for each in init.parent.glob("*/*.py")))
        }
        assert not names & modules, init
