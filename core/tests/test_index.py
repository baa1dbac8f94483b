"""What is installed, found in the metadata of distributions."""

import shutil
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import metadata

import pytest

from distcore_core.errors import PluginNotFound
from distcore_core.hooks import hookimpl
from distcore_core.registry import manager
from distcore_core.registry.index import Installed, Offer, all_offers
from distcore_core.registry.manager import Plugins


def test_a_distributions_metadata_are_read_once_whatever_it_offers(tmp_path, monkeypatch):
    info = tmp_path / "many-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: many\nVersion: 1.0\n")
    lines = "".join(f"number{each} = many\n" for each in range(20))
    (info / "entry_points.txt").write_text(f"[distcore.extensions]\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path))
    # The backport of importlib.metadata, once anything has imported it, finds in its place.
    (found,) = metadata.distributions(path=[str(tmp_path)])
    read, text_of = [], type(found).read_text

    def counted(self, name):
        if name == "METADATA" and self._path == info:
            read.append(name)
        return text_of(self, name)

    monkeypatch.setattr(type(found), "read_text", counted)
    offers = [each for each in all_offers()["extensions"] if each.distribution == "many"]
    assert len(offers) == 20
    assert len(read) == 1  # its name and its version


def test_metadata_are_read_again_once_something_was_installed_or_removed(tmp_path, monkeypatch):
    reads, read = [], metadata.entry_points
    monkeypatch.setattr(metadata, "entry_points", lambda: reads.append(1) or read())
    monkeypatch.setattr("sys.path", [str(tmp_path)])  # others may be installed meanwhile
    assert all_offers() is all_offers()
    assert len(reads) == 1
    info = tmp_path / "later-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: later\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[distcore.extensions]\nlater = later\n")
    assert "later" in Installed().names("extensions")
    assert "later" in Installed().names("extensions")
    assert len(reads) == 2
    shutil.rmtree(info)
    assert "later" not in Installed().names("extensions")
    assert len(reads) == 3


def test_what_is_installed_meanwhile_is_found(tmp_path, monkeypatch):
    """Whoever had looked before was told that it is blocked."""
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    known = Installed()
    with pytest.raises(PluginNotFound, match="No installed plugin offers extension 'later'"):
        known.find("extensions", "later")
    info = tmp_path / "later-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: later\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[distcore.extensions]\nlater = later\n")
    assert known.find("extensions", "later").distribution == "later"
    with pytest.raises(PluginNotFound, match="'later' is installed but blocked"):
        Installed(["later"]).find("extensions", "later")


def test_threads_may_use_new_plugins_at_once(monkeypatch):
    """Both found a plugin not registered, and the second to register it failed."""
    plugins, looking = Plugins(), threading.Barrier(2)

    def slowly(module):
        found = type(plugins.manager).is_registered(plugins.manager, module)
        with suppress(threading.BrokenBarrierError):
            looking.wait(0.3)
        return found

    monkeypatch.setattr(plugins.manager, "is_registered", slowly)
    monkeypatch.setattr(manager, "load", lambda offer: own)
    monkeypatch.setattr(plugins, "find", lambda kind, name: Offer(kind, name, "own", "own", "1"))
    own = types.ModuleType("own")
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(plugins.load, ["extensions"] * 2, ["one", "other"]))
    assert found == [own, own]


def test_a_plugin_that_another_thread_registers_meanwhile_is_not_asked(monkeypatch):
    """It was asked first, for the options of a name that it does not offer."""

    def module(name):
        made = types.ModuleType(name)
        made.model = type(name, (), {"model_validate": None})

        @hookimpl
        def distcore_options_model():
            return made.model

        made.distcore_options_model = distcore_options_model
        return made

    plugins, own, other = Plugins(), module("own"), module("other")
    offer = Offer("extensions", "own", "own", "own", "1")
    plugins._register(offer, own)
    plugins._modules["extensions", "own"] = own

    def meanwhile(kind, name):
        plugins._register(Offer("extensions", "other", "other", "other", "1"), other)
        return offer

    monkeypatch.setattr(plugins, "find", meanwhile)
    assert plugins.options_model("extensions", "own") is own.model


def test_offers_are_those_that_were_read_whatever_another_thread_forgets():
    class Forgetful(Installed):
        def __setattr__(self, name, value):
            super().__setattr__(name, None if name == "_every" else value)

    assert Forgetful().names("backends") == Installed().names("backends")


@pytest.mark.parametrize("finder", ["of Python", "of importlib_metadata"])
def test_a_distribution_without_a_name_is_left_out(tmp_path, monkeypatch, finder):
    """What pip is just removing, beside what took its place."""
    if finder == "of importlib_metadata":  # once something imports it, it answers for Python's
        pytest.importorskip("importlib_metadata")
    for folder in ("~ne-1.0.dist-info", "one-1.1.dist-info"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "entry_points.txt").write_text("[distcore.extensions]\none = one\n")
    (tmp_path / "one-1.1.dist-info/METADATA").write_text("Name: one\nVersion: 1.1\n")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert Installed().find("extensions", "one").version == "1.1"
