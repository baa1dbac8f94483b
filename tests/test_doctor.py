"""The doctor: machine, libraries, each plugin's parts; what is broken is a finding and stops
nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from distcore.cli.main import main
from distcore.workflow import doctor
from distcore_core.registry.index import all_offers
from distcore_testing.installed import lay_metadata

PLUGIN = """
from distcore_core.hooks import hookimpl
DISTCORE_API = (1, 0)
@hookimpl
def distcore_diagnose():
    {body}
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Lay down a distribution that offers the extension of its name, with this code; all others
    are blocked."""

    others = {offer.distribution for offers in all_offers().values() for offer in offers}
    monkeypatch.setenv("DISTCORE_BLOCK", ",".join(others))

    def installed(name: str, source: str, offers: dict | None = None) -> None:
        lay_metadata(tmp_path, name, offers or {"extensions": {name: name}})
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, name, raising=False)

    return installed


def by_part(checks):
    found: dict[str, list[doctor.Check]] = {}
    for check in checks:
        found.setdefault(check.part, []).append(check)
    return found


def test_it_looks_at_the_machine_the_libraries_and_each_plugins_parts():
    found = by_part(doctor.checks())
    assert {"Python", "processors"} <= {check.what for check in found["machine"]}
    assert {"torch", "pyarrow"} <= {check.what for check in found["library"]}
    local = [check.what for check in found["distcore-local 0.1.0"]]
    assert {"backends local", "processors local", "loaders packed", "trainers ddp"} <= set(local)
    assert local.count("torch.distributed") == 1
    assert {"caches parquet"} <= {check.what for check in found["distcore-parquet 0.1.0"]}


def test_what_a_plugin_finds_is_told(install):
    install(
        "well_one",
        PLUGIN.format(
            body='return [("engine", True, "2.1"), ("cluster", False, "cannot be reached")]'
        ),
    )
    found = by_part(doctor.checks())["well_one 1.0"]
    assert [tuple(check)[1:] for check in found] == [
        ("extensions well_one", True, "ok"),
        ("engine", True, "2.1"),
        ("cluster", False, "cannot be reached"),
    ]


def test_what_each_module_of_members_that_share_a_row_finds_is_told(install, tmp_path):
    (tmp_path / "other_module.py").write_text(
        PLUGIN.format(body='return [("library", False, "too old")]')
    )
    install(
        "members_one",
        PLUGIN.format(body='return [("engine", True, "2.1")]'),
        {"their.own": {"a": "members_one", "b": "other_module", "c": "members_one"}},
    )
    found = by_part(doctor.checks())["members_one 1.0"]
    assert [tuple(check)[1:] for check in found] == [
        ("their.own a, b, c", True, "ok"),
        ("engine", True, "2.1"),
        ("library", False, "too old"),
    ]


@pytest.mark.parametrize(
    "body", ["raise RuntimeError('no driver')", "import sys; sys.exit('no driver')", "return [1]"]
)
def test_checks_that_fail_are_a_finding(install, body):
    install("ill_one", PLUGIN.format(body=body))
    check = by_part(doctor.checks())["ill_one 1.0"][-1]
    assert not check.well
    assert "they failed" in check.found


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import time; time.sleep(600)", "did not finish its own checks within 2 s"),
        ("import os; os._exit(7)", "exit status 7"),
        ("import ctypes; ctypes.string_at(0)", "ended the interpreter"),
    ],
)
def test_checks_that_hang_or_crash_are_a_finding_and_the_others_are_told(
    install, monkeypatch, body, said
):
    monkeypatch.setattr(doctor, "SECONDS", 2.0 if "sleep" in body else 60.0)
    install("a_bad_one", PLUGIN.format(body=body))
    install("well_one", PLUGIN.format(body='print("noise"); return [("engine", True, "2.1")]'))
    found = by_part(doctor.checks())
    assert not found["a_bad_one 1.0"][-1].well
    assert said in found["a_bad_one 1.0"][-1].found
    assert found["well_one 1.0"][-1] == doctor.Check("well_one 1.0", "engine", True, "2.1")


def test_a_plugin_that_cannot_be_loaded_is_a_finding(install, capsys):
    install("gone_one", "raise OSError('libengine.so is missing')")
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    line = next(line for line in text.splitlines() if line.startswith("gone_one 1.0"))
    assert "NOT WELL" in line
    assert "libengine.so is missing" in line
    assert text.splitlines()[-1] == "Not well: gone_one 1.0 (extensions gone_one)."


def test_blocked_plugins_are_well_and_never_asked(install, monkeypatch):
    install("gone_one", "raise OSError('libengine.so is missing')")
    monkeypatch.setenv("DISTCORE_BLOCK", f"gone_one,{os.environ['DISTCORE_BLOCK']}")
    (check,) = by_part(doctor.checks())["gone_one 1.0"]
    assert (check.well, check.found) == (True, "blocked")


def test_old_and_missing_libraries_are_told(monkeypatch):
    from importlib import metadata

    versions = {"torch": "2.9.1+cpu", "pyarrow": "14.0.1"}

    def version(name):
        if name == "fsspec":
            raise metadata.PackageNotFoundError(name)
        return versions.get(name, "99.0")

    monkeypatch.setattr(metadata, "version", version)
    found = {check.what: check for check in doctor._libraries()}
    assert not found["torch"].well
    assert "at least 2.10 is needed" in found["torch"].found
    assert found["pyarrow"].well
    assert found["fsspec"].found == "not installed; pip install fsspec"


def test_a_folder_that_cannot_be_written_is_told(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10**10))
    check = next(check for check in doctor._machine() if check.what == f"working folder {tmp_path}")
    assert not check.well
    assert check.found == "10.0 GB free; this user may not write there"


def test_a_machine_without_a_temporary_folder_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(tmp_path / "gone")])
    (check,) = (each for each in doctor._machine() if "temporary" in each.what)
    assert not check.well
    assert "No usable temporary directory" in check.found


@pytest.mark.parametrize(
    ("free", "well", "found"),
    [
        (1_050_000_000, True, "1.1 GB free"),
        (990_000_000, False, "990.0 MB free of at least 1.0 GB that should be"),
    ],
)
def test_a_folder_with_little_room_says_how_much_is_needed(monkeypatch, free, well, found):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    checks = [each for each in doctor._machine() if " folder " in each.what]
    assert [(each.well, each.found) for each in checks] == [(well, found)] * 2


def test_json(install, capsys):
    install("well_one", PLUGIN.format(body='return [("engine", True, "2.1")]'))
    code = main(["doctor", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if all(check["well"] for check in found) else 1)
    assert set(found[0]) == {"part", "what", "well", "found"}
    told = {"part": "well_one 1.0", "what": "engine", "well": True, "found": "2.1"}
    assert told in found


def test_it_says_what_was_not_compiled_and_what_is_done_without_it(monkeypatch):
    def told():
        return {each.what: each for each in doctor._libraries() if each.what.startswith("compiled")}

    assert {each.found for each in told().values()} == {"built"}
    for module, _ in doctor.COMPILED.values():
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(doctor, "_source_of", lambda module: None)  # as in a wheel
    found = told()
    assert len(found) == len(doctor.COMPILED)
    for what, (_, without) in doctor.COMPILED.items():
        check = found[f"compiled {what}"]
        assert check.well
        assert "no C compiler was there" in check.found
        assert check.found.endswith(without)


def test_in_a_tree_that_was_never_built_it_says_what_builds_it(tmp_path):
    toolkits = Path(__file__).parent.parent / "toolkits"
    for name in ("data", "torch"):
        left_out = shutil.ignore_patterns("*.so", "build", "tests", "__pycache__")
        shutil.copytree(toolkits / name, tmp_path / name, ignore=left_out)
    paths = [str(tmp_path / name / "src") for name in ("data", "torch")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
    }
    program = "from distcore.workflow import doctor\nfor each in doctor._libraries(): print(*each)"
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout
    command = f"{sys.executable} setup.py -q build_ext --inplace"
    for what, (module, without) in doctor.COMPILED.items():
        source = tmp_path / ("data" if module.startswith("distcore_data") else "torch")
        told = f"not built in this source tree; {without}. Build it with: cd {source} && {command}"
        assert f"compiled {what} True {told}\n" in said


def test_what_is_built_and_cannot_be_loaded_is_told_with_its_error(tmp_path, monkeypatch):
    package = tmp_path / "broken"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_part.so").write_bytes(b"of another machine")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert doctor._compiled("broken._part", "slowly").startswith("it cannot be loaded (")
