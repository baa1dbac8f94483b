"""The package's own names."""

import pkgutil
import re
from importlib.metadata import version
from pathlib import Path

import distcore


def test_no_module_is_named_like_a_function_of_its_package():
    """Importing a submodule puts it in the package's namespace, in the place of a function of
    that name."""
    root = Path(distcore.__path__[0])
    for init in root.rglob("__init__.py"):
        modules = {module.name for module in pkgutil.iter_modules([str(init.parent)])}
        functions = set(re.findall(r"^(?:def|class) (\w+)", init.read_text(), re.MULTILINE))
        assert not modules & (
            functions | (set(distcore.__all__) if init.parent == root else set())
        ), init


def test_every_public_name_is_there():
    for name in distcore.__all__:
        assert callable(getattr(distcore, name)), name


def test_the_public_names_are_these():
    """A change of the public names is made on purpose: here, and in the changelog."""
    functions = [
        "diff",
        "evaluate",
        "experiment",
        "hyperopt",
        "load",
        "plan",
        "predict",
        "preprocess",
        "train",
        "verify",
    ]
    assert distcore.__all__ == ["Outcome", "SearchOutcome", *functions]


def test_the_version_is_the_distributions():
    assert distcore.__version__ == version("distcore")
