"""The quality scale: what a plugin's suites say of it, as bronze, silver or gold.

python -m distcore_testing.quality distcore-wind tests

runs the tests, says which rules hold and why another does not, and writes the tier into the
distribution's manifest, with digests of what was run. `distcore plugins` shows it as long as the
installed files are those.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import distcore_testing
from distcore_core.errors import PluginError
from distcore_core.registry.lock import GROUPS
from distcore_core.registry.manifest import TIERS, digest_of

SUITES: Mapping[str, tuple[str, ...]] = {
    "backends": ("BackendSuite",),
    "caches": ("CacheFormatSuite",),
    "callbacks": ("CallbackSuite",),
    "commands": ("CommandSuite",),
    "executors": ("ExecutorSuite",),
    "extensions": ("ExtensionSuite",),
    "features": ("FeatureSuite",),
    "loaders": ("LoaderSuite",),
    "models": ("ModelSuite",),
    "optimizers": ("OptimizerSuite",),
    "processors": ("ProcessorSuite", "ClusterProcessorSuite"),
    "report_sections": ("ReportSectionSuite",),
    "schedules": ("ScheduleSuite",),
    "sources": ("SourceSuite",),
    "splitters": ("SplitterSuite",),
    "stores": ("StoreSuite",),
    "tabular.combiners": ("CombinerSuite",),
    "tabular.decoders": ("DecoderSuite",),
    "tabular.encoders": ("EncoderSuite",),
    "tabular.losses": ("LossSuite",),
    "tabular.metrics": ("MetricSuite",),
    "tabular.tokenizers": ("TokenizerSuite",),
    "trainers": ("TrainerSuite",),
}
"""{kind: the suites of its role, one of which a plugin passes}; beside PluginSuite, of every."""

ENCODING = ("caches", "features", "sources", "splitters", "tabular.tokenizers")
"""Kinds whose members decide the bytes of a cache."""


@dataclass
class Run:
    """What a run of tests said. passed, failed: (suite, kind or "", name of what it tried) of each
    test of a suite. missing: names of its tests that were not to run, or are others. broken: tests
    that failed, of suites or not. ended: why pytest ended, but for failed tests; "": it ran all.
    warned: what warnings said."""

    passed: set[tuple[str, str, str]] = field(default_factory=set)
    failed: set[tuple[str, str, str]] = field(default_factory=set)
    missing: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    ended: str = ""
    warned: list[str] = field(default_factory=list)
    _of: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Which suite each test is of, of those that were not left out."""
        for item in session.items:
            made: Any = getattr(item, "cls", None)
            suite = next((name for name in _bases(made) if name in distcore_testing.__all__), "")
            if suite:
                name = getattr(made, "name", "") or getattr(made, "distribution", "")
                tried = self._of[item.nodeid] = (suite, getattr(made, "kind", ""), name)
                whole = getattr(distcore_testing, suite)
                tests = {each for each in dir(whole) if each.startswith("test_")}
                missing = self.missing.setdefault(tried, tests)
                test = getattr(item, "originalname", item.name)
                if getattr(made, test) is getattr(whole, test, None):
                    missing.discard(test)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """What became of each."""
        tried = self._of.get(report.nodeid)
        if report.failed:
            self.broken.append(report.nodeid)
        if tried is not None and (report.failed or (report.when == "call" and report.passed)):
            (self.failed if report.failed else self.passed).add(tried)

    def pytest_warning_recorded(self, warning_message: Any) -> None:
        """pytest shows them in the end."""
        self.warned.append(f"{warning_message.category.__name__}: {warning_message.message}")


def _bases(made: Any) -> Iterator[str]:
    return (each.__name__ for each in getattr(made, "__mro__", ()))


# ------------------------------------------------------------------ rules


@dataclass(frozen=True)
class Plugin:
    """What the rules look at. offers: (kind, name). modules: {file: its syntax tree}."""

    distribution: str
    offers: Sequence[tuple[str, str]]
    manifest: Mapping[str, Any]
    modules: Mapping[Path, ast.Module]
    run: Run


def suites(plugin: Plugin) -> str:
    """Every plugin passes PluginSuite and the suite of its role, and no test fails."""
    if plugin.run.broken:
        return f"{plugin.run.broken[0]} fails"
    if plugin.run.ended:
        return plugin.run.ended
    for kind, name in plugin.offers:
        wanted = [(each, "", name) for each in SUITES.get(kind, ())]
        for one_of in ([("PluginSuite", kind, name)], wanted):
            why = [_not_whole(each, plugin.run) for each in one_of]
            if why and all(why):
                return f"{why[0]} for {kind} {name}"
    return ""


def _not_whole(tried: tuple[str, str, str], run: Run) -> str:
    """Why a suite has not passed as it is; "": it has."""
    if tried not in run.passed - run.failed:
        return f"no {tried[0]} passed"
    missing = sorted(run.missing.get(tried, ()))
    return f"{missing[0]} of {tried[0]} was left out, or is another," if missing else ""


def manifest(plugin: Plugin) -> str:
    """ManifestSuite passes."""
    return _not_whole(("ManifestSuite", "", plugin.distribution), plugin.run)


def types(plugin: Plugin) -> str:
    """py.typed is there, and functions say what they take and give."""
    if not any((path.parent / "py.typed").is_file() for path in plugin.modules):
        return "the package has no py.typed"
    for path, node in _functions(plugin):
        untyped = [
            each.arg
            for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            if each.annotation is None and each.arg not in ("self", "cls")
        ]
        if untyped or node.returns is None:
            return f"{path.name}, line {node.lineno}: {node.name} is not annotated"
    return ""


def options(plugin: Plugin) -> str:
    """Every option has a description."""
    for kind, names in plugin.manifest["offers"].items():
        for name, offer in names.items():
            for schema in filter(None, offer["options"].values()):
                for option, said in schema.get("properties", {}).items():
                    if not said.get("description"):
                        return f"{kind} {name}: the option {option} has no description"
    return ""


def data_version(plugin: Plugin) -> str:
    """What decides the bytes of caches states a DATA_VERSION."""
    for kind, names in plugin.manifest["offers"].items():
        for name, offer in names.items():
            if kind in ENCODING and offer["data_version"] is None:
                return f"{kind} {name} states no DATA_VERSION"
    return ""


def warnings(plugin: Plugin) -> str:
    """The tests raise no warning."""
    return plugin.run.warned[0] if plugin.run.warned else ""


def documented(plugin: Plugin) -> str:
    """It has a README, and its public modules, classes and functions say what they are."""
    text: Any = metadata.metadata(plugin.distribution)  # a message, whose body is the README
    if not (text.get_payload() or text.get("Description", "")).strip():
        return "the distribution has no README"
    for path, tree in plugin.modules.items():
        if not ast.get_docstring(tree):
            return f"{path.name} has no docstring"
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            if not ast.get_docstring(node):
                return f"{path.name}, line {node.lineno}: {node.name} has no docstring"
    return ""


RULES: Mapping[str, Sequence[Callable[[Plugin], str]]] = {
    "bronze": (suites,),
    "silver": (manifest, types, options),
    "gold": (data_version, warnings, documented),
}
"""{tier: its rules}. A rule answers why it does not hold; "": it does. A tier has those below."""


def _functions(plugin: Plugin) -> Iterator[tuple[Path, ast.FunctionDef]]:
    for path, tree in plugin.modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield path, node


# ------------------------------------------------------------------ a run


def run_of(words: Sequence[str]) -> Run:
    """What pytest says of tests. words: of its command line."""
    run = Run()
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-W", "always", *words], plugins=[run])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        run.ended = f"pytest did not run every test: {code!r}"
    return run


def graded(distribution: str, tests: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Run the tests.

    Returns:
        The tier, "" for none, and {rule: why it does not hold, or ""}.

    Raises:
        PluginError: One of its plugins cannot be loaded.
    """
    entries = metadata.distribution(distribution).entry_points
    run = run_of(tests)  # before any suite is imported: pytest rewrites their asserts
    from distcore_testing.manifest import manifest_of, place_of

    offers = [
        (each.group.removeprefix(GROUPS), each.name)
        for each in entries
        if each.group.startswith(GROUPS)
    ]
    home = place_of(distribution).parent
    modules = {path: ast.parse(path.read_text("utf-8")) for path in sorted(home.rglob("*.py"))}
    plugin = Plugin(distribution, offers, manifest_of(distribution), modules, run)
    found = {rule.__name__: rule(plugin) for rules in RULES.values() for rule in rules}
    tier = ""
    for each in TIERS:
        if any(found[rule.__name__] for rule in RULES[each]):
            break
        tier = each
    return tier, found


def main(distribution: str, tests: Sequence[str]) -> int:
    """Say and record what holds; 1 for no tier, or for a manifest that is not there."""
    try:
        tier, found = graded(distribution, tests)
    except (PluginError, metadata.PackageNotFoundError) as error:
        print(f"{distribution} cannot be tried: {error}", file=sys.stderr)
        return 1
    for each, rules in RULES.items():
        for rule in rules:
            why = found[rule.__name__]
            print(f"{each:<7}{rule.__name__:<13}{'ok' if not why else f'no: {why}'}")
    from distcore_testing.manifest import place_of

    path = place_of(distribution)
    if not path.is_file():
        print(
            f"{path} is missing, so nothing is recorded. Write it: python -m "
            f"distcore_testing.manifest {distribution}",
            file=sys.stderr,
        )
        return 1
    known = json.loads(path.read_text("utf-8"))
    known.pop("quality", None)
    if tier:
        known["quality"] = {
            "tier": tier,
            "files": digest_of(distribution),
            "tests": _digest_of_tests(tests),
            "suites": metadata.version("distcore-testing"),
        }
    path.write_text(json.dumps(known, indent=2) + "\n", "utf-8")
    print(f"{distribution}: {tier or 'no tier'}")
    return 0 if tier else 1


def _digest_of_tests(tests: Sequence[str]) -> str:
    """sha256 over the Python files that were given, or lie in the folders that were."""
    total = sha256()
    for each in map(Path, tests):
        for path in sorted(each.rglob("*.py")) if each.is_dir() else [each]:
            total.update(f"{path.relative_to(each.parent)}\n".encode() + path.read_bytes())
    return total.hexdigest()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("python -m distcore_testing.quality DISTRIBUTION TESTS…")
    sys.exit(main(sys.argv[1], sys.argv[2:]))
