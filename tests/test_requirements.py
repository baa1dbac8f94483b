"""What is said where a distribution that another one requires was removed."""

import importlib

import pytest

from distcore.cli.main import _told
from distcore.cli.requirements import missing_requirement


def installed(folder, name, *requirements):
    """Lay down a distribution's metadata."""
    place = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    place.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
    lines += [f"Requires-Dist: {each}" for each in requirements]
    (place / "METADATA").write_text("\n".join([*lines, ""]))


def lacking(module):
    """The error of importing it."""
    with pytest.raises(ModuleNotFoundError) as raised:
        importlib.import_module(module)
    return raised.value


def test_who_requires_it_and_how_to_install_it(tmp_path, monkeypatch, capsys):
    installed(tmp_path, "engine-user", "numpy", "removed-engine<3,>=2")
    monkeypatch.syspath_prepend(tmp_path)
    code, _ = _told(lacking("removed_engine.inner"), 0)
    assert code == 1
    assert capsys.readouterr().err == (
        "distcore: removed-engine is not installed, and is required by engine-user. "
        "pip install 'removed-engine<3,>=2', and run the same command again.\n"
    )


def test_nothing_is_said_of_other_modules(tmp_path, monkeypatch):
    installed(tmp_path, "engine-user", "of-an-extra; extra == 'more'", "is-there")
    installed(tmp_path, "is-there")
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("of_an_extra", "is_there", "nobodys_module"):
        assert missing_requirement(lacking(module)) is None
    assert missing_requirement(ValueError("of_an_extra")) is None
