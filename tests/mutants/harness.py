"""Mutants: plugins that work but for one realistic fault, each beside a sound twin, and the test of
the conformance suite that must notice.

Every other module of this folder is a plugin module of one role. Its `MUTANTS` names the suite; a
class decorated with `@MUTANTS.sound` is the twin, one with `@MUTANTS.fault(…)` a mutant whose
docstring is the fault in a sentence; its hooks make them by name. `run` resolves them by entry
points, as a run of distcore does, in a child process whose working folder is their distribution.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from distcore_data.threads import processors
from distcore_testing.installed import lay_metadata
from distcore_torch.guests import put_back

HERE = Path(__file__).parent
ROLES = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in ("harness", "ranks"))
"""The modules of mutants."""


class Around:
    """A plugin that does everything as another does it: `inner`, of the same role."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.inner, name)


@dataclass(frozen=True)
class Mutant:
    """A plugin made for the suite.

    name: of its entry point. module: what the entry point names. made: what the role's hook makes
        it of.
    suite: that it is tried with. settings: attributes of the suite's subclass.
    fault: in a sentence; "" of a sound twin. caught_by: the suite's test that must fail.
    quick: whether the ordinary test run tries it. own: whether suite or settings are its own, not
        the role's; tried_as: the name of such a mutant, of a twin.
    """

    name: str
    module: str
    made: Any
    suite: type
    settings: Mapping[str, Any]
    fault: str = ""
    caught_by: str = ""
    quick: bool = False
    own: bool = False
    tried_as: str = ""

    @property
    def test_class(self) -> str:
        """The name of the suite's subclass for this plugin."""
        return f"Test_{self.name}" + (f"_as_{self.tried_as}" if self.tried_as else "")


@dataclass
class Mutants:
    """The mutants of one module.

    kind: the entry-point group without `distcore.`; "" if what is tried is no plugin.
    suite: of the role. settings: attributes of the suite's subclass, for all of them.
    prefix: what the names of their entry points begin with, such as `number.`.
    """

    kind: str
    suite: type
    settings: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = ""
    all: list[Mutant] = field(default_factory=list)

    def sound(self, made: Any) -> Any:
        """The twin of those that follow: the same without a fault."""
        self.all.append(
            Mutant(_named(made), made.__module__, made, self.suite, self._of(made, self.settings))
        )
        return made

    def fault(
        self, caught_by: str, *, quick: bool = False, suite: type | None = None, **settings: Any
    ) -> Callable[[Any], Any]:
        """A mutant.

        Args:
            caught_by: The suite's test that must fail, and that its twin passes.
            quick: Whether the ordinary test run tries it.
            suite: Another suite than the role's.
            settings: Attributes of the suite's subclass for this mutant, and for its twin then.
        """

        def decorated(made: Any) -> Any:
            tried = suite or self.suite
            assert callable(getattr(tried, caught_by, None)), f"{tried} has no {caught_by}"
            self.all.append(
                Mutant(
                    _named(made),
                    made.__module__,
                    made,
                    tried,
                    self._of(made, {**self.settings, **settings}),
                    _sentence(made),
                    caught_by,
                    quick,
                    own=bool(suite or settings),
                )
            )
            return made

        return decorated

    def module(self, name: str, fault: str = "", caught_by: str = "", **more: Any) -> None:
        """A mutant, or a sound twin, that is a module of its own."""
        short = name.rpartition(".")[2]
        self.all.append(
            Mutant(short, name, None, self.suite, dict(self.settings), fault, caught_by, **more)
        )

    def twin(self, mutant: Mutant) -> Mutant:
        """The sound plugin before it, tried as the mutant is."""
        before = self.all[: self.all.index(mutant)]
        found = next(each for each in reversed(before) if not each.fault)
        if not mutant.own:
            return found
        settings = {**mutant.settings, **self._of(found.made, {})}
        return replace(found, suite=mutant.suite, settings=settings, tried_as=mutant.name)

    def named(self, name: str) -> Any:
        """What a hook makes the plugin of this name of; None if it is not one of these."""
        short = name.removeprefix(self.prefix)
        return next((each.made for each in self.all if each.name == short), None)

    def _of(self, made: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings, with what is tried itself if no entry point names it: a strategy."""
        if self.kind:
            return dict(settings)
        return {**settings, "strategy": f"{made.__module__}:{made.__qualname__}"}


def mutants(role: str) -> Mutants:
    """Those of a module of this folder."""
    found: Mutants = import_module(f"tests.mutants.{role}").MUTANTS
    return found


def test_classes(role: str) -> dict[str, type]:
    """{name: subclass of the suite} for every mutant and every twin: what a test file holds."""
    family = mutants(role)
    tried = [*family.all, *(family.twin(each) for each in family.all if each.fault)]
    return {
        each.test_class: type(
            each.test_class, (each.suite,), {"name": family.prefix + each.name, **each.settings}
        )
        for each in tried
    }


def wanted(role: str, mutant: Mutant) -> list[str]:
    """The tests that show this mutant caught: one of its own, and the same of its twin."""
    return [
        f"{whole(role, each)}::{mutant.caught_by}" for each in (mutant, mutants(role).twin(mutant))
    ]


def whole(role: str, tried: Mutant) -> str:
    """The whole suite of a mutant or twin."""
    return f"test_{role}.py::{tried.test_class}"


def run(folder: Path, tests: Iterable[str], timeout: float = 7200) -> dict[str, str]:
    """Run these tests of the mutants in a process of their own, or one a processor.

    Returns:
        {"file::class::test": what it failed with, "" if it passed}; of a test with parameters, the
        first failure. "skipped": it was, with all of its parameters.
    """
    _write_distribution(folder)
    paths = [str(folder), str(HERE.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    words = ["-q", "--tb=short", "-p", "no:cacheprovider", "-c", "pytest.ini", "--junit-xml=found"]
    if "PYTEST_XDIST_WORKER" not in os.environ:  # else the others are at work already
        words += ["-n", str(processors()), "--dist", "loadscope"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *sorted(set(tests))],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert (folder / "found").exists(), done.stdout[-20000:] + done.stderr[-2000:]
    found: dict[str, str] = {}
    for case in ElementTree.parse(folder / "found").iter("testcase"):
        file, _, group = case.get("classname", "").partition(".")
        key = f"{file}.py::{group}::{case.get('name', '').partition('[')[0]}"
        failed = "".join(str(each.text) for each in case if each.tag in ("failure", "error"))
        before = found.get(key, "skipped")
        if failed or case.find("skipped") is None:
            before = "" if before == "skipped" else before
        found[key] = before or failed
    return found


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What a mutant leaves changed of the process is none of the next one's."""
    environment = dict(os.environ)
    with put_back("A mutant"):
        yield
    os.environ.clear()
    os.environ.update(environment)


def _write_distribution(folder: Path) -> None:
    """A distribution with an entry point for each mutant, and a test file for each role."""
    offers: dict[str, dict[str, str]] = {}
    for role in ROLES:
        family = mutants(role)
        for each in family.all:
            if family.kind:
                offers.setdefault(family.kind, {})[f"{family.prefix}{each.name}"] = each.module
        (folder / f"test_{role}.py").write_text(
            "from tests.mutants import harness\n\n"
            f"globals().update(harness.test_classes({role!r}))\n"
        )
    (folder / "conftest.py").write_text("from tests.mutants.harness import as_before\n")
    lay_metadata(folder, "mutants", offers)
    (folder / "pytest.ini").write_text("[pytest]\n")


def _named(made: Any) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", made.__name__).lower()


def _sentence(made: Any) -> str:
    text = inspect.cleandoc(made.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    assert text.endswith("."), f"{made.__name__} does not say its fault in a sentence"
    return text
