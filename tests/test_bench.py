"""The benchmarks, which are too long to be run here, name what there is."""

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

BENCH = sorted((Path(__file__).parents[1] / "bench").glob("*.py"))


@pytest.mark.parametrize("path", BENCH, ids=lambda path: path.stem)
def test_what_a_stage_imports_of_ours_is_there(path):
    """Stages import inside functions, so that a peer's process loads nothing of ours."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("distcore"):
            module = importlib.import_module(node.module)
            for name in (each.name for each in node.names):
                folder = hasattr(module, "__path__")
                there = hasattr(module, name) or (
                    folder and importlib.util.find_spec(f"{node.module}.{name}")
                )
                assert there, (
                    f"{path.name}:{node.lineno} imports {name}, which {node.module} does not have"
                )
