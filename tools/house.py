"""What import-linter is not asked by itself: no circles among modules, and how large core is.

import-linter's own contracts (pyproject.toml) hold the layers. They see circles among packages that
lie side by side; this one sees every circle of modules, type-checking imports too.
`python -m tools.house` prints core's files and lines, and fails if they are more than core may
have.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application import contract_utils

CORE = Path(__file__).parent.parent / "core" / "src" / "distcore_core"


class NoCircles(Contract):
    """No modules import each other in a circle."""

    ignore_imports = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        contract_utils.remove_ignored_imports(
            graph=graph,
            ignore_imports=self.ignore_imports,  # type: ignore[arg-type]
            unmatched_alerting=contract_utils.AlertLevel.ERROR,
        )
        found = list(self.breaks(graph))
        return ContractCheck(kept=not found, metadata={"breaks": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for each in check.metadata["breaks"]:
            output.print_error(each)
            output.new_line()

    def breaks(self, graph: ImportGraph) -> Iterator[str]:
        for circle in _circles(
            {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}
        ):
            inside = set(circle)
            yield "These modules import each other in a circle:"
            for module in circle:
                for imported in sorted(graph.find_modules_directly_imported_by(module) & inside):
                    lines = [str(each["line_number"]) for each in _details(graph, module, imported)]
                    yield f"    {module} -> {imported} in line {', '.join(lines)}"


def _details(graph: ImportGraph, module: str, imported: str) -> list[dict[str, object]]:
    return list(graph.get_import_details(importer=module, imported=imported))  # type: ignore[arg-type]


def _circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts of more than one module: what can reach each other
    (Kosaraju's two passes)."""
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


MOST_LINES = 4000
LONGEST = 300


def main() -> int:
    """Core's size; 1 if it is more than core may be."""
    lines = {
        path: len(path.read_text(encoding="utf-8").splitlines()) for path in CORE.rglob("*.py")
    }
    longest = max(lines, key=lambda path: lines[path])
    total = sum(lines.values())
    print(
        f"core: {total} lines in {len(lines)} files; the longest is {longest.name}, "
        f"{lines[longest]}"
    )
    if total > MOST_LINES:
        print(
            f"Core may have {MOST_LINES} lines: move what only upper layers use into the lowest "
            "that uses it."
        )
    if lines[longest] > LONGEST:
        print(f"A file of core may have {LONGEST} lines: {longest.name} is to be divided.")
    return int(total > MOST_LINES or lines[longest] > LONGEST)


if __name__ == "__main__":
    sys.exit(main())
