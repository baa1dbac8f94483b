"""The plugin API is what was recorded for its version: a change is seen, and says what is to be
done."""

import dataclasses
import re

import pluggy
import pytest
from tools import api_surface
from typing_extensions import deprecated

from distcore_core import contracts, hooks
from distcore_core.registry.manager import Plugins

RECORDED = "API 1.0\nm.A: class()\nm.f(a: int)\n"


def test_the_surface_is_the_recorded_one():
    complaint = api_surface.complaint(
        api_surface.RECORDED.read_text(encoding="utf-8"), api_surface.surface()
    )
    assert not complaint, complaint


@pytest.mark.parametrize(
    ("lines", "version", "wanted"),
    [
        ("m.A: class()\nm.f(a: int)\nm.g()\n", "1.0", "Raise it to (1, 1) at least"),
        ("m.A: class()\n", "1.0", "Raise it to (2, 0) at least"),
        ("m.A: class()\nm.f(a: int, b: int)\n", "1.1", "Raise it to (2, 0) at least"),
        ("m.A: class()\nm.f(a: int)\nm.g()\n", "1.1", "API_VERSION is (1, 1), as it may be"),
    ],
)
def test_a_difference_says_which_version_it_needs(lines, version, wanted):
    said = api_surface.complaint(RECORDED, f"API {version}\n{lines}")
    assert wanted in said
    assert "Add a line to CHANGELOG.md and run `python -m tools.api_surface --write`." in said


def test_a_member_warns_for_two_minor_versions_before_it_goes():
    """docs/policy.md: what goes without that is told by name."""
    marked = "API {}\nm.A: class()\nm.f(a: int) deprecated: since API 1.1; use m.g\n"
    deprecating = api_surface.complaint(RECORDED, marked.format("1.1"))
    assert "API_VERSION is (1, 1), as it may be" in deprecating, "to deprecate breaks nobody"
    without = "API 2.0\nm.A: class()\n"
    assert "m.f(a: int) goes without having warned." in api_surface.complaint(RECORDED, without)
    early = api_surface.complaint(marked.format("1.2"), without)
    assert "m.f(a: int) warns since 1.1 only: keep it in API 1.3." in early
    assert api_surface.too_soon(marked.format("1.3"), without) == []


def test_a_deprecated_member_warns_and_is_seen_in_the_surface():
    """What each says is from when on, and what to use instead."""

    @deprecated("since API 1.1; use that")
    def this(a: int) -> int:
        return a

    with pytest.warns(DeprecationWarning, match=r"since API 1\.1; use that"):
        assert this(1) == 1
    [line] = api_surface.described("this", this)
    assert line == "this(a: int) -> int deprecated: since API 1.1; use that"
    marks = [each for each in api_surface.surface().splitlines() if "deprecated: " in each]
    for each in marks:
        assert re.search(r"deprecated: since API \d+\.\d+; use ", each), each


def test_a_hook_that_will_go_warns_who_implements_it():
    class Spec:
        @pluggy.HookspecMarker(hooks.PROJECT)(
            warn_on_impl=DeprecationWarning("since API 1.1; use distcore_make_member")
        )
        def distcore_make_old(self, name):
            """A factory of former times."""

    class Plugin:
        @hooks.hookimpl
        def distcore_make_old(self, name):
            return name

    plugins = Plugins()
    plugins.manager.add_hookspecs(Spec)
    with pytest.warns(DeprecationWarning, match="use distcore_make_member"):
        plugins.listen(Plugin(), "old")


def test_the_same_surface_under_its_version_is_no_difference():
    assert api_surface.complaint(RECORDED, RECORDED) == ""


def test_a_surface_that_changed_is_not_recorded_under_the_same_version(
    tmp_path, monkeypatch, capsys
):
    """But a version that nobody was given yet may still change."""
    path = tmp_path / "api_surface.txt"
    path.write_text("API 1.0\nm.gone: class()\n")
    monkeypatch.setattr(api_surface, "RECORDED", path)
    monkeypatch.setattr(api_surface, "API_VERSION", (1, 0))
    assert api_surface.main(["--write"]) == 1
    assert "Raise it to (2, 0)" in capsys.readouterr().err
    assert "m.gone" in path.read_text()
    monkeypatch.setattr(api_surface, "API_VERSION", (2, 0))
    assert api_surface.main(["--write"]) == 0
    assert path.read_text().startswith("API 2.0\n")
    path.write_text("API 2.0\nm.gone: class()\n")
    assert api_surface.main(["--write", "--before-release"]) == 0
    assert "m.gone" not in path.read_text()


def test_a_field_a_default_and_a_member_are_seen():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Value:
        a: "int"
        b: "str" = "x"

        def at(self, place: "int", *, deep: "bool" = False) -> "str": ...

    Value.__module__ = "distcore_core.made"
    assert list(api_surface.described("Value", Value)) == [
        "Value: class() frozen",
        "Value.a: int kw_only",
        "Value.at(self, place: int, *, deep: bool = False) -> str",
        "Value.b: str = 'x' kw_only",
    ]


def test_values_that_cross_are_made_by_keyword():
    """All but those that say beside them why not."""
    positional = {contracts.Credentials, contracts.Role}
    found = [getattr(contracts, name) for name in contracts.__all__]
    crossing = {
        each for each in found if isinstance(each, type) and dataclasses.is_dataclass(each)
    } - positional
    assert len(crossing) >= 13
    for each in crossing:
        assert all(field.kw_only for field in dataclasses.fields(each)), each
