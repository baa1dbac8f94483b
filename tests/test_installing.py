"""What the README says of installing: too old a Python, Windows, and a machine that does not
count processors for us."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from distcore_data.threads import processors

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
@pytest.mark.parametrize("version", [(3, 10), (3, 11)])
def test_make_refuses_an_old_python_before_anything_else(
    tmp_path: Path, version: tuple[int, int]
) -> None:
    """A stand-in says it is older: another Python is not to be had on every machine."""
    python = tmp_path / "python"
    pretend = f"import sys; sys.version_info = {(*version, 0)}; exec(sys.argv[1])"
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} -c "{pretend}" "$2"\nexit 7\n'
    )
    python.chmod(0o755)
    words = [
        "make",
        "--no-print-directory",
        "demo",
        f"PYTHON={python}",
        f"VENV={tmp_path / 'venv'}",
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    refused = f"distcore needs Python 3.11 or newer, and {python} is 3.10" in done.stderr
    assert refused == (version == (3, 10)), done.stderr
    assert not (tmp_path / "venv").exists()


def test_windows_is_told_what_to_do() -> None:
    """The platform is only named so here: no Windows is at hand."""
    code = (
        "import sys; sys.platform = 'win32'; import runpy; runpy.run_module('distcore', "
        "run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("distcore: Windows is not supported")
    assert "WSL 2" in done.stderr
    assert "Traceback" not in done.stderr


def test_processors_are_counted_where_the_system_does_not_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert processors() == os.cpu_count()


def test_the_readme_speaks_of_no_registry() -> None:
    text = (ROOT / "README.md").read_text()
    assert "\npip install distcore\n" not in text
    assert "https://download.pytorch.org/whl/cpu" in text
    assert "on no package registry yet" in text
