"""A package whose names are imported when they are first used."""

import subprocess
import sys

import pytest

from distcore_core.lazy import on_first_use


def test_a_name_is_imported_when_it_is_used(tmp_path):
    package = tmp_path / "lazily_made"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from distcore_core.lazy import on_first_use\n"
        "__getattr__ = on_first_use(__name__, {'answer': 'heavy'})\n"
    )
    (package / "heavy.py").write_text("print('imported')\nanswer = 42\n")
    code = (
        "import lazily_made as it; print('named'); from lazily_made import answer; print(answer, "
        "vars(it)['answer'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "named\nimported\n42 42\n"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'here' has no attribute 'nothing'"):
        on_first_use("here", {})("nothing")
