"""What the documents say is run: shell lines, Python, configs and files, each document in a
folder of its own."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MARKED = re.compile(r"<!-- test: (?P<what>\S+) -->\n```\w*\n(?P<code>.*?)```", re.DOTALL)


def blocks(document: str) -> list[tuple[str, str]]:
    """(what, code) of every marked block of a document, in order."""
    return [
        (found["what"], found["code"]) for found in MARKED.finditer((ROOT / document).read_text())
    ]


def run(words: list[str], folder: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": os.pathsep.join([str(folder), str(folder / "installed")]),
    }
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, env=environment, timeout=900
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"


@pytest.mark.system
@pytest.mark.parametrize("document", ["README.md", "docs/tutorial.md", "docs/hyperopt.md"])
def test_documents_run(document: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "penguins" / "penguins.csv", tmp_path)
    found = blocks(document)
    assert {what for what, _ in found} >= {"sh", "python"}
    for what, code in found:
        if what == "config":
            (tmp_path / "config.yaml").write_text(code)
        elif what == "sh":
            run(["bash", "-euo", "pipefail", "-c", code], tmp_path)
        elif what == "python":
            run([sys.executable, "-c", code], tmp_path)
        else:
            assert what.startswith("file=")
            (tmp_path / what.removeprefix("file=")).write_text(code)


@pytest.mark.system
def test_the_plugin_of_the_document_installs_and_passes_its_suite(tmp_path: Path) -> None:
    for what, code in blocks("docs/plugins.md"):
        (tmp_path / what.removeprefix("file=")).write_text(code)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
    ]
    run([*pip, "--target", "installed", "."], tmp_path)
    shutil.rmtree(tmp_path / "build", ignore_errors=True)
    (tmp_path / "distcore_angle.py").unlink()
    run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_angle.py"], tmp_path)


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_hook_is_documented_and_has_an_implementation_or_a_caller() -> None:
    """A hook that nobody implements or calls, or that no page names, fails the build."""
    import inspect

    from distcore_core import events, hooks

    specs = {
        name: each
        for name, each in (vars(hooks) | vars(events)).items()
        if hasattr(each, "distcore_spec")
    }
    assert len(specs) >= 18
    page = (ROOT / "docs" / "hooks.md").read_text()
    code = "\n".join(
        path.read_text()
        for folder in ("core", "toolkits", "plugins", "src", "tests")
        for path in (ROOT / folder).rglob("*.py")
    )
    for name, each in specs.items():
        assert inspect.getdoc(each), f"{name} has no docstring"
        assert f"## {name}\n" in page, f"{name} is missing in docs/hooks.md"
        assert len(re.findall(rf"\b{name}\b", code)) >= 2, f"{name} is only declared"
