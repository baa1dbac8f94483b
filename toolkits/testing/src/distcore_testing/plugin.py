"""What every plugin module must hold, whatever it offers: found, light, its options checked to
their depth, its factories honest, its checks well formed."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from distcore_core.contracts import MEMBER_HOOK, ROLES, Role
from distcore_core.plugin import API_VERSION, ConfigError
from distcore_core.registry.manager import Plugins
from distcore_testing.imports import SHARE, TIMES, check_light, in_a_child

LOAD = """
from distcore_core.registry.manager import Plugins
module = Plugins().load({kind!r}, {name!r})
"""

DETECT = """
found = getattr(module, "distcore_detect", lambda: None)()
print("FOUND" + json.dumps(found and vars(found)))
"""

UNKNOWN = "no_such_option_anywhere"


class PluginSuite:
    """Subclass with `kind` (the entry-point group without `distcore.`) and `name`. role: of a
    feature's options. options: for its factory, if it cannot do without. seconds: False if the
    module may take longer than core itself to import."""

    kind: str
    name: str
    role: str = "input"
    options: Mapping[str, Any] = {}
    seconds = True

    def test_it_is_found_and_states_an_api_that_fits(self) -> None:
        """For its role (`Role.since`): loading refuses any other."""
        module: Any = Plugins().load(self.kind, self.name)
        assert module.DISTCORE_API <= API_VERSION

    # -------------------------------------------------------------- light

    def test_loading_and_detecting_imports_nothing_heavy(self) -> None:
        """Engines wait for the factory; a detection only looks at the environment and at files.

        It is measured: how many modules of others it brings, what it starts and writes."""
        found = in_a_child((LOAD + DETECT).format(kind=self.kind, name=self.name))
        check_light(found, self.package())
        detection = json.loads(found["printed"].partition("FOUND")[2])
        if detection is not None:
            assert detection["backend"] == self.name
            assert detection["reason"]

    def test_loading_only_defines(self) -> None:
        """It asks no network and leaves the process as it is: every `distcore plugins` does it."""
        found = self.loaded()
        assert found["printed"] == "", "it prints"
        assert not found["acted"], "it touches files or the network"
        assert not found["changed"], "it changes the process"

    def test_loading_takes_no_longer_than_core_itself(self) -> None:
        """The shortest of some times, in times of what core takes on this machine."""
        if not self.seconds:
            pytest.skip("it may take longer")
        shares = []
        for number in range(TIMES):
            found = self.loaded(number)
            shares.append(found["seconds"] / found["core"])
            if min(shares) <= SHARE:
                break
        assert min(shares) <= SHARE, f"{min(shares):.1f} times as long as core"

    # -------------------------------------------------------------- options

    def test_an_unknown_option_is_refused_by_its_name(self) -> None:
        """Options come from a model with extra="forbid", or there are none."""
        with self.unchanged(), pytest.raises(ConfigError, match=UNKNOWN):
            Plugins().validate(
                self.kind, self.name, {**self.options, UNKNOWN: 1}, role=self._role()
            )

    def test_its_options_have_a_json_schema(self) -> None:
        """`distcore schema` and the config reference are made of it."""
        schema = self.schema()
        if schema is not None:
            assert schema.get("additionalProperties") is False
            assert json.dumps(schema) == json.dumps(self.schema())

    def test_unknown_options_are_refused_however_deep_they_lie(self) -> None:
        """A misspelt one in a section of a section would else be passed over."""
        for where, section in sections_of(self.schema() or {}):
            assert section.get("additionalProperties") is False, (
                f'the options in {where} take unknown names: give their model extra="forbid"'
            )

    # -------------------------------------------------------------- factories

    def test_its_factory_makes_nothing_by_another_name(self) -> None:
        """None is the answer for what is not its own."""
        role = ROLES.get(self.kind)
        if role is None or role.hook == MEMBER_HOOK or role.type is object:
            pytest.skip("core does not know what this role's factory is given")
        plugins = Plugins()
        module = plugins.load(self.kind, self.name)
        given = dict.fromkeys(
            ("options", "request", "column", "role", "plugins", "given", "context", "kind")
        )
        others = [each for each in plugins.manager.get_plugins() if each is not module]
        hook = plugins.manager.subset_hook_caller(role.hook, others)
        assert hook(name="no such name anywhere", **{**given, "plugins": plugins}) is None

    def test_its_factory_makes_all_that_its_role_asks_for(self) -> None:
        """One that raises, answers None or leaves a member out ends each run that names it; one
        whose modules set a seed when they are imported changes the first run of a process."""
        role: Role[Any] | None = ROLES.get(self.kind)
        if role is None or self.kind in ("loaders", "sections", "upgrades"):
            pytest.skip("the suite of its role makes it")
        context = {"column": "column", "role": self.role} if self.kind == "features" else {}
        plugins = Plugins()
        with self.unchanged():
            first, second = (
                plugins.make(role, self.name, dict(self.options) or None, **context)
                for _ in range(2)
            )
        assert first is not None
        assert type(first) is type(second)
        close = getattr(first, "close", None)
        for each in (first, second) if close else ():
            each.close()

    def test_its_data_version_is_one(self) -> None:
        """A text or a whole number; caches and models are told apart by it."""
        Plugins().encoder(self.kind, self.name)

    def test_its_checks_are_well_formed(self) -> None:
        module: Any = Plugins().load(self.kind, self.name)
        for what, well, found in getattr(module, "distcore_diagnose", list)() or []:
            assert isinstance(what, str)
            assert isinstance(well, bool)
            assert isinstance(found, str)

    # -------------------------------------------------------------- parts

    def unchanged(self) -> AbstractContextManager[None]:
        """Around what leaves numpy's and torch's random numbers, and torch's settings, as they are.

        Libraries draw Python's while they are imported."""
        if importlib.util.find_spec("torch") is None:
            return nullcontext()
        from distcore_testing.member_values import process_stays

        return process_stays(but=["Python's random numbers"])

    def loaded(self, number: int = 0) -> dict[str, Any]:
        """What importing the module costs, in the measurement of this number."""
        return measured(self.kind, self.name, number)

    def schema(self) -> dict[str, Any] | None:
        """Of its options, or None if it has none."""
        with self.unchanged():
            model: Any = Plugins().options_model(self.kind, self.name, self._role())
        found: dict[str, Any] | None = model and json.loads(json.dumps(model.model_json_schema()))
        return found

    def package(self) -> str:
        """Its own top-level package."""
        return Plugins().find(self.kind, self.name).value.partition(".")[0]

    def _role(self) -> str:
        return self.role if self.kind == "features" else ""


@functools.lru_cache(maxsize=8)
def measured(kind: str, name: str, number: int) -> dict[str, Any]:
    """What importing a plugin's module costs."""
    return in_a_child(LOAD.format(kind=kind, name=name))


def sections_of(schema: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    """Every object with named options in a schema, with where it stands."""
    if "properties" in schema:
        yield where or "its options", schema
    for name, part in schema.items():
        if isinstance(part, dict):
            yield from sections_of(part, f"{where}.{name}".strip("."))
        elif isinstance(part, list):
            for each in part:
                if isinstance(each, dict):
                    yield from sections_of(each, f"{where}.{name}".strip("."))
