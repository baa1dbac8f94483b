"""The laws on imports: what the command line must not load, and what a local run must never
load."""

import json
import os
import subprocess
import sys
from importlib import import_module

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from distcore_data.threads import SPINS

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
COMPILER = {"torch._dynamo", "torch._inductor", "sympy"}
"""A second of every start, for nothing."""


def modules_after(code: str) -> set[str]:
    """Top-level modules loaded by a fresh interpreter after the code ran."""
    return {name.partition(".")[0] for name in all_modules_after(code)}


def all_modules_after(code: str) -> set[str]:
    """The full names of modules loaded by a fresh interpreter after the code ran."""
    script = f"import sys, json\n{code}\nprint('MODULES' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )
    assert "MODULES" in done.stdout, done.stderr
    return set(json.loads(done.stdout.rpartition("MODULES")[2]))


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
]
OF_PLUGINS = ["hyperopt", "report", "cache", "cache list"]


HELP = """
import sys
from distcore.cli.main import main
for command in {commands!r}:
    try:
        main([*command.split(), "--help"])
    except SystemExit:
        pass
    print("LOADED", repr(command), sorted({heavy!r} & sys.modules.keys()))
"""


def loaded_by_help(commands: list[str], heavy: set[str]) -> list[str]:
    """In one process: what a command loads stays, and the first line that is not empty names it."""
    code = HELP.format(commands=commands, heavy=heavy)
    return [line for line in output_of(code).splitlines() if "LOADED" in line]


def test_help_loads_nothing_heavy() -> None:
    contracts = "distcore_core.contracts"  # half of what --help takes
    loaded = loaded_by_help(COMMANDS, {*HEAVY, contracts})
    assert loaded == [f"LOADED {command!r} []" for command in COMMANDS]


def test_help_of_a_plugins_command_loads_its_light_module_and_nothing_heavy() -> None:
    loaded = loaded_by_help(OF_PLUGINS, HEAVY - {"stevedore"})
    assert loaded == [f"LOADED {command!r} []" for command in OF_PLUGINS]


def test_the_plugin_api_and_the_toolkits_load_nothing_heavy_until_a_name_is_used() -> None:
    toolkits = "distcore_data, distcore_torch, distcore_search, distcore_testing"
    assert not modules_after(f"import distcore_core.plugin, {toolkits}") & HEAVY


def test_import_distcore_loads_nothing_heavy() -> None:
    assert not modules_after("import distcore; dir(distcore)") & HEAVY


@pytest.mark.parametrize("kit", ["data", "search", "testing", "torch", "trees"])
def test_what_a_toolkit_exports_is_seen_by_help_and_by_completion(kit: str) -> None:
    package = import_module(f"distcore_{kit}")
    assert set(package.__all__) <= set(dir(package))


def test_plugin_modules_load_nothing_heavy() -> None:
    """Every plugin.py may be imported while detecting or listing, so it must stay light."""
    loaded = modules_after(
        "import distcore_local.plugin, distcore_parquet.plugin, distcore_tabular.plugin, "
        "distcore_report.plugin"
    )
    assert not loaded & (HEAVY - {"stevedore"})


def test_who_only_names_a_models_folder_loads_nothing_heavy() -> None:
    assert not modules_after("import distcore_data.artifact") & HEAVY


def test_whoever_starts_a_worker_group_does_not_load_torch() -> None:
    """Its ranks do; they would wait for it."""
    code = (
        "from distcore_core.contracts import TRAINER\n"
        "from distcore_core.registry.manager import Plugins\n"
        "Plugins().make(TRAINER, 'data_parallel', {'num_workers': 2}).strategy"
    )
    assert not modules_after(code) & ({"torch"} | ENGINES)


def test_preprocessing_loads_neither_torch_nor_pandas(tmp_path) -> None:
    code = preprocess_code(tmp_path)
    assert not modules_after(code) & ({"torch", "pandas"} | ENGINES)


def test_preprocessing_builds_validators_of_what_its_config_names(tmp_path) -> None:
    """pydantic builds one when it is first used; a default made by `model_validate` uses it."""
    code = (
        f"{preprocess_code(tmp_path)}\n"
        "import distcore_tabular.options as features, distcore_tabular.options_parts as parts\n"
        "from pydantic import BaseModel\n"
        "for module in (features, parts):\n"
        "    for each in vars(module).values():\n"
        "        if isinstance(each, type) and issubclass(each, BaseModel):\n"
        "            if each is not BaseModel and each.__pydantic_complete__:\n"
        "                sys.modules['built:' + each.__name__] = None"
    )
    built = {name for name in all_modules_after(code) if name.startswith("built:")}
    named = ("NumberInputOptions", "CategoryInputOptions", "BinaryOutputOptions")
    assert built == {f"built:{each}" for each in named}


def test_what_is_installed_is_looked_up_once_for_a_command(tmp_path) -> None:
    """Its plugins are made twice, since its config says which of them to block."""
    code = (
        "import distcore_core.registry.index as index\n"
        "read, found = index.metadata.entry_points, []\n"
        "def entry_points(**group):\n"
        "    found.extend([] if group else [1])  # pydantic asks for a group of its own\n"
        "    return read(**group)\n"
        "index.metadata.entry_points = entry_points\n"
        f"{preprocess_code(tmp_path)}\n"
        "assert len(found) == 1, found"
    )
    all_modules_after(code)


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "feather"])
def test_preprocessing_of_typed_formats_loads_no_pandas_either(tmp_path, kind) -> None:
    """Numbers with gaps, NaN among them; a category with a label once; texts, one of them
    missing."""
    import pyarrow as pa
    import pyarrow.feather as feather
    import pyarrow.parquet as pq

    rows = [
        {
            "n": None if row % 7 == 0 else row / 3,
            "c": f"c{row % 5}" if row else "NA",
            "t": None if row == 9 else f"Some words, {row % 11}",
            "y": row % 2,
        }
        for row in range(60)
    ]
    path = tmp_path / f"data.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        rows[3]["n"] = float("nan")
        write = pq.write_table if kind == "parquet" else feather.write_feather
        write(pa.Table.from_pylist(rows), path)
    code = (
        "import distcore\n"
        "inputs = [{'name': 'n', 'type': 'number'}, {'name': 'c', 'type': 'category'}, "
        "{'name': 't', 'type': 'text', 'encoder': {'type': 'embed'}}]\n"
        "config = {'input_features': inputs, 'output_features': [{'name': 'y', 'type': 'binary'}]}\n"
        f"distcore.preprocess(config, dataset={str(path)!r})"
    )
    assert not modules_after(code) & {"torch", "pandas"}


@pytest.mark.system
def test_a_local_experiment_loads_nothing_that_it_does_not_use(tmp_path) -> None:
    """torchmetrics imports scipy.signal, with it scipy.stats, wherever scipy is installed."""
    code = preprocess_code(tmp_path).replace(
        "distcore.preprocess(config, dataset=data)",
        "distcore.experiment(config, dataset=data, output_directory=out)",
    )
    assert not all_modules_after(code) & (ENGINES | COMPILER | {"pandas", "scipy.stats"})


def test_training_alone_loads_no_metrics(tmp_path) -> None:
    """Without a validation split and without a report, which has scores of the training rows,
    nobody needs torchmetrics."""
    code = preprocess_code(tmp_path).replace(
        "distcore.preprocess(config, dataset=data)",
        "config['preprocessing'] = {'split': {'type': 'random', 'probabilities': [1.0, 0.0, "
        "0.0]}}\n"
        "distcore.train(config, dataset=data, output_directory=out, skip={'skip_save_report'})",
    )
    loaded = all_modules_after(code)
    assert "distcore_torch.training.loop" in loaded
    assert not loaded & (ENGINES | COMPILER | {"torchmetrics", "scipy", "pandas"})


def test_waiting_threads_give_way_unless_the_user_says_otherwise() -> None:
    code = (
        "import os\n"
        "from distcore_data.threads import patient_threads\n"
        "{}\n"
        "patient_threads()\n"
        "print(dict(os.environ))"
    )
    assert f"'GOMP_SPINCOUNT': '{SPINS}'" in output_of(
        code.format("os.environ.pop('GOMP_SPINCOUNT', 0)")
    )
    assert "GOMP_SPINCOUNT" not in output_of(
        code.format("os.environ['OMP_WAIT_POLICY'] = 'active'")
    )
    assert "'GOMP_SPINCOUNT': '7'" in output_of(code.format("os.environ['GOMP_SPINCOUNT'] = '7'"))


def test_numpys_idle_threads_sleep_unless_the_user_says_otherwise() -> None:
    code = (
        "import os\n"
        "from distcore.cli.main import main\n"
        "{}\n"
        "main(['plugins'])\n"
        "print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    )
    name = "OPENBLAS_THREAD_TIMEOUT"
    assert output_of(code.format(f"os.environ.pop({name!r}, 0)")).endswith("\n16\n")
    assert output_of(code.format(f"os.environ[{name!r}] = '26'")).endswith("\n26\n")


def test_training_and_prediction_keep_what_a_step_frees(tmp_path) -> None:
    code = preprocess_code(tmp_path).replace(
        "distcore.preprocess(config, dataset=data)",
        "from distcore_data import memory\n"
        "told = []\n"
        "memory.keep_freed_memory = lambda: told.append(True)\n"
        "distcore.preprocess(config, dataset=data)\n"
        "seen = [len(told)]\n"
        "model = distcore.train(config, dataset=data, output_directory=out).model\n"
        "seen.append(len(told) > 0)\n"
        "told.clear()\n"
        "distcore.predict(model, data, output_directory=out)\n"
        "print('told', *seen, len(told) > 0)",
    )
    assert "told 0 True True" in output_of(code)


def output_of(code: str) -> str:
    """What a fresh interpreter prints, without the variables that this one may have set."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=clean
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def preprocess_code(folder) -> str:
    """Code that preprocesses a small CSV file (making a frame would itself import pandas through
    pyarrow)."""
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
    """Importing `package.name` sets that attribute: a function of the name would be a module
    from then on."""
    import ast
    from pathlib import Path

    for init in Path(__file__).parent.parent.glob("*/**/src/**/__init__.py"):
        tree = ast.parse(init.read_text())
        names = {
            each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.ClassDef)
        }
        modules = {
            each.stem
            for each in (
                *init.parent.glob("*.py"),
                *(each.parent for each in init.parent.glob("*/*.py")),
            )
        }
        assert not names & modules, init


def test_pandas_is_imported_by_no_run_on_files(tmp_path):
    """Whatever the columns and outputs are: 0.26 s and 52 MB for each command."""
    rows = pa.array([*range(400)])
    table = pa.table(
        {
            "truth": pc.equal(pc.bit_wise_and(rows, 1), 0),
            "level": pc.divide(rows, 7.0),
            "when": rows.view(pa.timestamp("ms")),
            "kind": pc.bit_wise_and(rows, 3),
            "amount": pc.multiply(rows, 0.5),
        }
    )
    pq.write_table(table, tmp_path / "data.parquet")
    config = {
        "input_features": [
            {"name": "truth", "type": "category"},
            {"name": "level", "type": "category"},
            {"name": "when", "type": "date"},
        ],
        "output_features": [
            {"name": "kind", "type": "category"},
            {"name": "amount", "type": "number"},
        ],
        "preprocessing": {"split": {"type": "datetime", "column": "when"}},
        "trainer": {"epochs": 1},
        "backend": {"type": "local", "cache_dir": str(tmp_path / "cache")},
    }
    loaded = modules_after(
        "import distcore\n"
        f"data, folder = {str(tmp_path / 'data.parquet')!r}, {str(tmp_path / 'results')!r}\n"
        f"distcore.experiment({config!r}, data, output_directory=folder, view='none')\n"
        "model = distcore.load(folder + '/experiment_run/model')\n"
        "model.predict(data)\n"
        "model.evaluate(data)\n"
    )
    assert "torch" in loaded
    assert "pandas" not in loaded


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_init_imports_no_pandas_either(tmp_path, kind):
    """Whatever its columns hold: texts, sets, labels, identifiers, dates of two spellings, numbers
    with a word among them."""
    rows = [
        {
            "text": f"some words of row {row % 90} and more",
            "pair": f"{row % 350} {row % 7}",
            "set": "a,b,c" if row % 2 else "b,c,d",
            "label": f"l{row % 3}" if row % 4 else f"rare{row}",
            "id": f"k{row}",
            "day": "none" if row == 7 else f"2020-01-{row % 28 + 1:02}",
            "other_day": f"{row % 28 + 1:02}/01/2020",
            "number": "n/a" if row == 9 else f"{row / 7}",
            "money": f"${row}.50",
            "count": row,
            "hour": row % 24,
            "y": row % 2,
        }
        for row in range(400)
    ]
    path = tmp_path / f"data.{kind}"
    if kind == "csv":
        lines = [rows[0].keys(), *(each.values() for each in rows)]
        path.write_text("".join(",".join(f'"{each}"' for each in line) + "\n" for line in lines))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    words = ["init", "--dataset", str(path), "--target", "y", "--output", str(tmp_path / "c.yaml")]
    loaded = modules_after(f"from distcore.cli.main import main\nassert main({words!r}) == 0")
    assert "pyarrow" in loaded
    assert "pandas" not in loaded
    written = (tmp_path / "c.yaml").read_text()
    assert all(f"type: {each}" in written for each in ("text", "set", "category", "date", "number"))
