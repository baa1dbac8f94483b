"""The four layers, held by import-linter: core, toolkits, plugins, the app on top; arrows point down only.

`MOVES` says of every module of today's one distribution in which room it will stand. Two kinds of contract
read it, with type-checking imports counted: no import runs to a room that its own may not know, and no
modules import each other in a circle. What breaks them today is listed as `ignore_imports` in
pyproject.toml; a break that is gone must leave that list.
`python -m tools.house` prints core's files and lines.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application import contract_utils

MOVES: dict[str, dict[str, str]] = {
    "distcore_core": {
        "errors hooks progress signals threads": "",
        "config.base_options config.document config.mistakes config.nodes config.places": "config",
        "contracts": "contracts",
        "digests disk durable locks seals temporaries vouched": "io",
        "asking inventory listeners loading offers plugins": "registry",
    },
    "distcore_data": {
        "arrow artifact columns config.preprocess_options dataset features tasks": "",
        "cache": "cache",
        "encoding": "encoding",
        "source sources": "sources",
        "mirror stores": "stores",
    },
    "distcore_torch": {
        "batch config.optimizer_options config.train_options diagnostics evaluation packing prediction sampler": "",
        "training": "training",
    },
    "distcore_search": {
        "search.objective search.options search.plugin search.records search.rounds search.space search.variants": "",
    },
    "distcore_testing": {"testing": ""},
    "distcore_report": {"report": ""},
    "distcore_tabular": {"config.upgrade": ""},
}
"""{distribution: {modules of `distcore` today: their folder there}}. A module takes those below it along; all
others are the app's."""

TOOLKITS = {"distcore_data", "distcore_torch", "distcore_search"}
KNOWS: dict[str, set[str]] = {
    "distcore_core": set(),
    "distcore_data": {"distcore_core"},
    "distcore_torch": {"distcore_core", "distcore_data"},
    "distcore_search": {"distcore_core"},
    "distcore_testing": {"distcore_core", *TOOLKITS},
    "distcore": {"distcore_core", *TOOLKITS},
}
"""What each may import; a plugin is any other, and knows core and the toolkits."""

PLACES = {
    f"distcore.{module}": room for room, folders in MOVES.items() for modules in folders for module in modules.split()
}
CORE = Path(__file__).parent.parent / "core" / "src" / "distcore"


def room_of(module: str) -> str:
    """The distribution that the module will be in."""
    above = module
    while above:
        if above in PLACES:
            return PLACES[above]
        above = above.rpartition(".")[0]
    return module.partition(".")[0]


class _OfTheHouse(Contract):
    """Options of both contracts."""

    ignore_imports = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        contract_utils.remove_ignored_imports(
            graph=graph,
            ignore_imports=self.ignore_imports,  # type: ignore[arg-type]
            unmatched_alerting=contract_utils.AlertLevel.ERROR,
        )
        found = list(self.breaks(graph))
        return ContractCheck(kept=not found, metadata={"breaks": found})

    def breaks(self, graph: ImportGraph) -> Iterator[str]:
        raise NotImplementedError

    def render_broken_contract(self, check: ContractCheck) -> None:
        for each in check.metadata["breaks"]:
            output.print_error(each)
            output.new_line()


class Layers(_OfTheHouse):
    """No import runs to a room that the importing module's may not know."""

    def breaks(self, graph: ImportGraph) -> Iterator[str]:
        ours = {module for module in graph.modules if module.startswith("distcore")}
        for module in sorted(ours):
            room = room_of(module)
            for imported in sorted(graph.find_modules_directly_imported_by(module) & ours):
                other = room_of(imported)
                if other != room and other not in KNOWS.get(room, KNOWS["distcore"]):
                    lines = [str(each["line_number"]) for each in _details(graph, module, imported)]
                    yield f"{module} ({room}) imports {imported} ({other}) in line {', '.join(lines)}."


class NoCircles(_OfTheHouse):
    """No modules import each other in a circle."""

    def breaks(self, graph: ImportGraph) -> Iterator[str]:
        for circle in _circles({each: graph.find_modules_directly_imported_by(each) for each in graph.modules}):
            inside = set(circle)
            yield "These modules import each other in a circle:"
            for module in circle:
                for imported in sorted(graph.find_modules_directly_imported_by(module) & inside):
                    lines = [str(each["line_number"]) for each in _details(graph, module, imported)]
                    yield f"    {module} -> {imported} in line {', '.join(lines)}"


def _details(graph: ImportGraph, module: str, imported: str) -> list[dict[str, object]]:
    return list(graph.get_import_details(importer=module, imported=imported))  # type: ignore[arg-type]


def _circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts of more than one module: what can reach each other (Kosaraju's two passes)."""
    importers: dict[str, set[str]] = {module: set() for module in imports}
    for module, imported in imports.items():
        for each in imported:
            importers[each].add(module)
    order = [module for part in _reached(sorted(imports), imports) for module in part]
    return [sorted(part) for part in _reached(reversed(order), importers) if len(part) > 1]


def _reached(starts: Iterator[str] | list[str], edges: dict[str, set[str]]) -> Iterator[list[str]]:
    """What each start reaches first, in the order in which the search leaves it."""
    seen: set[str] = set()
    for start in starts:
        left, path = [], [] if start in seen else [(start, iter(sorted(edges[start])))]
        seen.add(start)
        while path:
            module, rest = path[-1]
            following = next((each for each in rest if each not in seen), None)
            if following is None:
                left.append(module)
                path.pop()
            else:
                seen.add(following)
                path.append((following, iter(sorted(edges[following]))))
        yield left


def main() -> int:
    """Core's size, as it would be moved today."""
    modules = ["distcore." + ".".join(path.relative_to(CORE).with_suffix("").parts) for path in CORE.rglob("*.py")]
    paths = [
        CORE.parent / (module.replace(".", "/") + ".py") for module in modules if room_of(module) == "distcore_core"
    ]
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    longest = max(lines, key=lambda path: lines[path])
    print(
        f"core: {sum(lines.values())} lines in {len(lines)} files; the longest is {longest.name} with {lines[longest]}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
