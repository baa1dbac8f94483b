"""A lock of plugins: what it does not name runs no byte in any process, and what was changed since
is refused before it runs. An audit hook in every process writes down what Python executes."""

import json
from pathlib import Path

import pytest

from distcore_core.errors import PluginBroken
from distcore_core.registry import lock
from distcore_core.registry.lock import files_of, locked, refuse_changed

HOOK = """
import os, sys

def heard(event, arguments):
    if event == "exec" and getattr(arguments[0], "co_filename", "").endswith("distcore_stray.py"):
        with open(os.environ["HEARD"], "a") as file:
            file.write(str(os.getpid()) + "\\n")

sys.addaudithook(heard)
"""
STRAY = """
from distcore_core.hooks import hookimpl

DISTCORE_API = (1, 0)

@hookimpl
def distcore_upgrade_config(document):
    return []

@hookimpl
def distcore_detect():
    return None

@hookimpl
def distcore_make_member(kind, name):
    return None
"""
OFFERS = {kind: ["stray"] for kind in ("upgrades", "backends", "sources", "commands")}


class Site:
    """A folder with the distribution distcore-stray and the audit hook."""

    def __init__(self, place, distribution, folder: Path) -> None:
        self.place, self.folder = place, folder
        self.heard, self.lock = folder.parent / "heard", folder.parent / "my.lock"
        info = distribution(folder, "distcore-stray", STRAY, offers=OFFERS)
        self.entries = info / "entry_points.txt"
        (folder / "sitecustomize.py").write_text(HOOK)

    def run(self, *words: object, code: int = 0, locked: bool = True, beside: str = "") -> str:
        """What a command says; locked: with the lock in force."""
        lock = {"DISTCORE_LOCK": str(self.lock)} if locked else {}
        site = self.folder if not beside else Path(beside)
        return self.place.beside(site, *words, code=code, HEARD=str(self.heard), **lock)

    def ran(self) -> bool:
        """Whether a byte of the plugin ran since this was last asked."""
        found = self.heard.exists()
        self.heard.unlink(missing_ok=True)
        return found


@pytest.fixture
def site(place, distribution, tmp_path):
    return Site(place, distribution, tmp_path / "site")


@pytest.mark.system
def test_what_is_installed_and_not_locked_runs_no_byte(site, place):
    site.run("plugins", "lock", "--output", site.lock, locked=False, beside=place.folder)
    commands = (
        ["plugins", "--json"],
        ["schema"],
        ["doctor", "--json"],
        ["completion", "bash"],
        ["plan", "--config", place.config, "--dataset", place.data, "--json"],
        place.words("preprocess"),
    )
    for words in commands:
        if words[0] != "doctor":  # whether all is well here is the machine's
            said = site.run(*words)
        else:
            site.place.finish(
                place.python(
                    *("-m", "distcore", *words),
                    PYTHONPATH=str(site.folder),
                    HEARD=str(site.heard),
                    DISTCORE_LOCK=str(site.lock),
                )
            )
        assert not site.ran(), words
        if words[0] == "plugins":
            rows = [row for row in json.loads(said) if row["distribution"] == "distcore-stray"]
            assert {(row["state"], row["error"]) for row in rows} == {
                ("blocked", "not in the lock")
            }
            assert len(rows) == 4
    refused = site.run("preprocess", "--backend", "stray", *place.words("preprocess")[1:], code=2)
    assert "or not in the lock (DISTCORE_LOCK)" in refused
    assert not site.ran()
    site.run("plugins", locked=False)  # and without the lock the hook hears it
    assert site.ran()


def test_writing_a_lock_runs_nothing_and_it_lets_in_what_it_names(site, place):
    said = site.run("plugins", "lock", "--output", site.lock, locked=False)
    assert not site.ran()
    assert f"export DISTCORE_LOCK={site.lock}" in said
    locked = json.loads(site.lock.read_text())["distributions"]
    assert locked["distcore-stray"]["version"] == "1.0"
    assert set(locked["distcore-stray"]["files"]) == {"entry_points.txt", "distcore_stray.py"}
    assert "distcore_tabular/plugin.py" in locked["distcore-tabular"]["files"]
    site.run(*place.words("preprocess"))
    assert site.ran()


@pytest.mark.parametrize("mended_by", ["the lock", "the plugin"])
def test_what_the_error_advises_helps_in_the_same_process(site, monkeypatch, mended_by):
    """It refused what was put right until it was started again."""
    site.run("plugins", "lock", "--output", site.lock, locked=False)
    monkeypatch.syspath_prepend(site.folder)
    monkeypatch.setenv("DISTCORE_LOCK", str(site.lock))
    monkeypatch.setattr(lock, "_digests", {})
    source = site.folder / "distcore_stray.py"
    source.write_text(STRAY + "# changed\n")
    for _ in range(2):
        with pytest.raises(PluginBroken, match=r"stray is not .*: distcore_stray.py changed since"):
            refuse_changed("distcore-stray", "stray")
        assert (
            locked()["distcore-stray"]["distcore_stray.py"]
            != (
                files_of("distcore-stray")["distcore_stray.py"]  # as a receipt asks
            )
        )
    if mended_by == "the lock":
        site.run("plugins", "lock", "--output", site.lock, locked=False)
    else:
        source.write_text(STRAY)
    refuse_changed("distcore-stray", "stray")
    source.unlink()
    refuse_changed("distcore-stray", "stray")  # what was digested is digested
    monkeypatch.delenv("DISTCORE_LOCK")
    refuse_changed("never-there", "nobody")


def test_a_refusal_digests_the_refused_anew_alone(site, monkeypatch):
    """It let go of the digests of all, so that each of many refusals cost those of the others."""
    site.run("plugins", "lock", "--output", site.lock, locked=False)
    monkeypatch.syspath_prepend(site.folder)
    monkeypatch.setenv("DISTCORE_LOCK", str(site.lock))
    monkeypatch.setattr(lock, "_digests", {})
    others = files_of("distcore-tabular")
    (site.folder / "distcore_stray.py").write_text(STRAY + "# changed\n")
    with pytest.raises(PluginBroken):
        refuse_changed("distcore-stray", "stray")
    assert files_of("distcore-tabular") is others


@pytest.mark.parametrize("change", ["code", "entry", "gone", "version"])
def test_what_was_changed_since_is_refused_before_it_runs(site, place, change):
    site.run("plugins", "lock", "--output", site.lock, locked=False)
    source = site.folder / "distcore_stray.py"
    if change == "code":
        source.write_text(source.read_text() + "# harmless\n")
    elif change == "entry":
        with site.entries.open("a") as file:
            file.write("[distcore.trainers]\nstray = distcore_stray\n")
    elif change == "gone":
        source.unlink()
    else:  # another release, of one more file
        (site.folder / "distcore_stray").mkdir()
        source.rename(site.folder / "distcore_stray" / "__init__.py")
    told = site.run(*place.words("preprocess"), code=1)
    what = "entry_points.txt" if change == "entry" else "distcore_stray"
    assert f"distcore-stray 1.0 is not as {site.lock} says: {what}" in told
    assert f"write the lock again with `distcore plugins lock --output {site.lock}`" in told
    assert not site.ran()
    rows = json.loads(site.run("plugins", "--json"))
    [row] = [row for row in rows if (row["role"], row["name"]) == ("backends", "stray")]
    assert row["state"] == "broken"
    assert "is not as" in row["error"]
    assert not site.ran()


@pytest.mark.parametrize("text", [None, '{"distributions": {"x": 1}}'])
def test_a_lock_that_cannot_be_read_lets_nothing_in(site, place, text):
    if text is not None:
        site.lock.write_text(text)
    told = site.run(*place.words("preprocess"), code=1)
    assert f"{site.lock}, which DISTCORE_LOCK names, is no lock that can be read" in told
    assert "Remove it, write another one by `distcore plugins lock --output" in told
    assert not site.ran()
