"""docs/reliability.md's table, from what `make hostile` recorded;
`python tests/hostile/record.py` writes it."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORD = Path("build/hostile.jsonl")
"""Where a run leaves its rows, one a line; `make hostile` begins a new one."""

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- hostile: begin -->\n", "<!-- hostile: end -->\n"


def table(rows: list[dict[str, object]]) -> str:
    """The rows as Markdown, in the order of their tests."""
    lines = ["| what was tried | how often | what came of it | test |", "|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: (str(row["test"]), str(row["what"]))):
        test = str(row["test"]).removeprefix("tests/hostile/")
        lines.append(f"| {row['what']} | {row['count']:,} | {row['outcome']} | `{test}` |")
    return "\n".join(lines) + "\n"


def named(page: str) -> set[str]:
    """The tests that the page's table names."""
    inner = page.partition(BEGIN)[2].partition(END)[0]
    cells = (line.split("|") for line in inner.splitlines()[2:])
    return {f"tests/hostile/{cell[4].strip().strip('`')}" for cell in cells}


def main() -> int:
    """Put the recorded rows into the page; rows of tests that were not run now stay. Returns the
    exit code."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    inner, _, after = rest.partition(END)
    new = [json.loads(line) for line in (ROOT / RECORD).read_text().splitlines()]
    ran = {row["test"] for row in new}
    for line in inner.splitlines()[2:]:
        what, count, outcome, test = (cell.strip() for cell in line.strip("|").split("|"))
        name = f"tests/hostile/{test.strip('`')}"
        if name not in ran:
            new.append(
                {
                    "test": name,
                    "what": what,
                    "count": int(count.replace(",", "")),
                    "outcome": outcome,
                }
            )
    PAGE.write_text(before + BEGIN + table(new) + END + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
