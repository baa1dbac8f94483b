"""The list of plugins: whatever a plugin does while it is loaded is its own row (more in
test_plugins.py)."""

import json
import subprocess
import sys

import pytest
from tests.distributions import distribution

from distcore.cli.main import main
from distcore.workflow import probe
from distcore.workflow.listing import rows
from distcore_core.contracts import ROLES
from distcore_core.errors import DistcoreError
from distcore_core.registry.index import all_offers
from distcore_core.registry.manager import Plugins

SECONDS = 60
"""What each is given: enough on a busy machine, too."""

OFFENDERS = {
    "crashes": ("import ctypes; ctypes.string_at(0)", "ended the interpreter"),
    "exits": ("import os; os._exit(7)", "exit status 7"),
    "fails": ("raise ValueError('one line\\nand another')", "one line"),
    "prints": ("print('{\"error\": \"I am well\"}'); raise ValueError('not so')", "not so"),
    "reads": ("import sys; sys.stdin.read(); raise ValueError('was read')", "was read"),
}


def lay_down(folder, name, source):
    """A distribution that does its worst at import, and a good one behind it."""
    for module, code in ((name, source), (f"{name}_not", "DISTCORE_API = (1, 0)")):
        distribution(folder, module, f"{code}\n", entry=module)


@pytest.fixture
def offenders(tmp_path, monkeypatch):
    for name, (source, _) in OFFENDERS.items():
        lay_down(tmp_path, name, source)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_every_offender_is_a_row_and_all_others_are_listed(offenders):
    found = {row.name: row for row in rows(Plugins(), seconds=SECONDS, kinds=["trainers"])}
    for name, (_, said) in OFFENDERS.items():
        assert found[name].state == "broken", name
        assert said in found[name].error
        assert "\n" not in found[name].error
        assert found[f"{name}_not"].state == "ok", name
    assert found["local"].state == "ok"
    assert not set(OFFENDERS) & set(sys.modules)


def test_one_that_sleeps_is_a_row_and_the_one_behind_it_is_listed(tmp_path, monkeypatch):
    """All others of its role are blocked, for each is given as little as it is."""
    others = {offer.distribution for offer in all_offers()["trainers"]}
    lay_down(tmp_path, "sleeps", "import time; time.sleep(600)")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {row.name: row for row in rows(Plugins(others), 2, kinds=["trainers"])}
    assert found["sleeps"].state == "broken"
    assert "within 2 s" in found["sleeps"].error
    assert found["sleeps_not"].state == "ok"
    assert {found[name].state for name in found if "sleeps" not in name} == {"blocked"}


def test_the_first_plugin_s_time_is_its_own():
    """The child imported stevedore and read all metadata in it."""
    code = """if True:
        import sys
        from distcore.workflow import probe
        from distcore_core.registry.index import _read_offers

        class Ready:
            def decode(self):
                return f"{'stevedore' in sys.modules} {_read_offers.cache_info().currsize}"

        probe.READY = Ready()
        probe._child("load")
    """
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, input="[]\n", capture_output=True, text=True, timeout=120)
    assert found.stdout == "True 1", found.stderr


def test_the_command_lists_them_and_ends_well(offenders, tmp_path, capsys, monkeypatch):
    """Listing is looking: that a plugin is broken is what was asked, not a failure."""
    lay_down(tmp_path, "sleeps", "import time; time.sleep(600)")
    monkeypatch.setenv("DISTCORE_BLOCK", "sleeps")
    assert main(["plugins", "--timeout", str(SECONDS)]) == 0
    text = capsys.readouterr().out
    header, *lines = text.splitlines()
    assert header.split() == ["ROLE", "NAME", "DISTRIBUTION", "VERSION", "STATE", "ERROR"]
    state = {line.split()[1]: line.split()[4] for line in lines if line.split()[0] == "trainers"}
    assert state["local"] == "ok"
    assert state["exits"] == "broken"
    assert state["sleeps"] == "blocked"
    assert main(["plugins", "--json", "--timeout", str(SECONDS)]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["state"] for row in listed if row["role"] == "trainers"} == state
    assert set(listed[0]) == {*header.lower().split(), "quality"}


def test_a_process_that_cannot_ask_plugins_is_no_plugin_s_fault(tmp_path, monkeypatch):
    """Each plugin in turn was told as broken; what came late was read as its answer."""
    monkeypatch.setattr(probe, "START_SECONDS", 0.0)
    with pytest.raises(DistcoreError, match="did not start within 0 s"):
        rows(Plugins(), kinds=["trainers"])
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(tmp_path))
    for end in ("\n", ""):
        (tmp_path / "sitecustomize.py").write_text(f"print('Hello', end={end!r}, flush=True)")
        assert {row.state for row in rows(Plugins(), kinds=["processors"])} == {"ok"}
    (tmp_path / "sitecustomize.py").write_text("import os; os._exit(5)")
    with pytest.raises(DistcoreError, match=r"could not start \(exit status 5\)"):
        rows(Plugins(), kinds=["trainers"])


def test_our_own_plugins_are_all_well():
    found = rows(Plugins())
    assert set(ROLES) - {"extensions", "commands"} <= {row.role for row in found}
    ours = {
        (row.role, row.name)
        for row in found
        if row.distribution.startswith("distcore-") and row.state == "ok"
    }
    assert {
        ("backends", "local"),
        ("caches", "parquet"),
        ("features", "text"),
        ("models", "module"),
    } <= ours
