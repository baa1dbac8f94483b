"""A plugin that was built against API 1.0, and is never built again, goes on working with this
core.

tests/frozen has the wheel, its sources and the script that made it. If a test here fails, the
plugins of others fail
too: bring the API back, or raise API_VERSION to another major version, freeze a plugin of that
    one, and remove this."""

import ast
import io
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from tools import compatibility

FROZEN = Path(__file__).parent / "frozen"
WHEEL = FROZEN / "distcore_frozen-1.0-py3-none-any.whl"
DECLARED = {
    "distcore_core.plugin",
    "distcore_data",
    "distcore_torch",
    "distcore_search",
    "distcore_testing",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frozen")
    compatibility.install(WHEEL, folder)
    return folder


def test_the_sources_beside_it_are_those_in_the_wheel():
    with zipfile.ZipFile(WHEEL) as wheel:
        inside = {name: wheel.read(name) for name in wheel.namelist() if name.endswith(".py")}
    assert inside == {
        f"distcore_frozen/{path.name}": path.read_bytes()
        for path in (FROZEN / "distcore_frozen").glob("*.py")
    }


def test_it_imports_only_what_is_declared():
    with zipfile.ZipFile(WHEEL) as wheel:
        sources = [wheel.read(name).decode() for name in wheel.namelist() if name.endswith(".py")]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    found = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    found |= {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    ours = {
        module
        for module in found
        if module.startswith("distcore") and not module.startswith("distcore_frozen")
    }
    assert ours <= DECLARED
    assert "distcore_core.plugin" in ours


@pytest.mark.system
def test_its_trainer_its_cache_format_and_its_feature_make_an_experiment(installed, tmp_path):
    told = compatibility.experiment(installed, tmp_path)

    shards = sorted((tmp_path / "cache").rglob("train/*.frozen"))
    assert shards
    encoded = pa.concat_tables(
        [pa.ipc.open_file(io.BytesIO(path.read_bytes())).read_all() for path in shards]
    )
    known = [
        pair for pair in encoded["wind"].to_pylist() if pair != pytest.approx([1.0, 0.0], abs=1e-6)
    ]
    assert encoded["wind"].type == pa.list_(pa.float32(), 2)
    assert len(known) > 400
    assert all(
        sum(value * value for value in pair) == pytest.approx(1.0, abs=1e-5) for pair in known
    )

    means = json.loads((Path(told["model"]) / "means.json").read_text())
    assert means["z"] == pytest.approx(sum(encoded["z"].to_pylist()) / encoded.num_rows)
    assert sum(means["k"]) == pytest.approx(1.0)
    assert len(set(told["k"])) == len(set(told["z"])) == 1
    assert told["training"]["validation"]["k"]["accuracy"][0] > 0.3
    assert told["test"]["k"]["accuracy"] > 0.3


def test_the_page_of_what_was_tried_is_the_present_one(installed):
    """That the plugin makes an experiment, the test above says."""
    assert compatibility.wheels() == [WHEEL]
    now = compatibility.page(compatibility.rows_of(WHEEL, installed, ran=True))
    assert compatibility.PAGE.read_text() == now, "run `python -m tools.compatibility`"
