"""How much of distcore a whole trainer needs to know."""

import ast
from pathlib import Path

SOURCES = sorted((Path(__file__).parents[1] / "src").rglob("*.py"))
OWN = "distcore_lightgbm"


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def test_two_modules_of_ours():
    found = {
        module for path in SOURCES for module in imported(path) if module.startswith("distcore")
    }
    ours = {module for module in found if module.partition(".")[0] != OWN}
    declared = {"distcore_core.plugin", "distcore_trees"}
    assert "distcore_core.plugin" in ours
    assert ours <= declared
