"""docs/reliability.md names every hostile test there is, and no other."""

import subprocess
import sys

from tests.hostile.record import BEGIN, END, PAGE, ROOT, named, table


def test_a_table_names_the_tests_that_it_was_made_from():
    rows = [
        {
            "test": f"tests/hostile/test_a.py::test_{name}",
            "what": "a flip",
            "count": 12_000,
            "outcome": "none silent",
        }
        for name in ("x", "y[1]")
    ]
    assert named(f"text\n{BEGIN}{table(rows)}{END}more\n") == {row["test"] for row in rows}


def test_the_page_names_every_hostile_test_and_no_other():
    words = [sys.executable, "-m", "pytest", "--collect-only", "-qm", "hostile", "tests/hostile"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    collected = {line for line in done.stdout.splitlines() if line.startswith("tests/hostile/")}
    assert done.returncode in (0, 5), done.stdout + done.stderr
    missing, gone = collected - named(PAGE.read_text()), named(PAGE.read_text()) - collected
    assert not missing, (
        "run `make hostile` (or these tests with DISTCORE_HOSTILE=1, then tests/hostile/record.py)"
    )
    assert not gone, "rows of tests that are no more: remove them"
