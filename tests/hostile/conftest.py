"""What every hostile test has: how often to try, random numbers that can be repeated, and a record
of what came of it.

`make hostile` tries as often as docs/reliability.md says and writes that page; `make system`
tries a few of each.
"""

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile.record import RECORD

SHARE = float(os.environ.get("DISTCORE_HOSTILE") or 0)
"""The share of the full counts: 1 under `make hostile`, less if there is less time; 0 in
`make system`."""

SEED = int(os.environ.get("DISTCORE_SEED", "20261122"))


class Sweep:
    """One hostile test's counts.

    random: seeded by DISTCORE_SEED and the test's name; the seed is printed if the test fails.
    """

    def __init__(self, test: str) -> None:
        self.test = test
        self.random = random.Random(f"{SEED} {test}")
        self.rows: list[dict[str, object]] = []
        self._since = time.monotonic()

    def times(self, few: int, full: int) -> int:
        """How often to try: `few` in `make system`, `full` (or the share of it that was asked)
        under `make hostile`."""
        return max(few, round(full * SHARE))

    def tried(self, what: str, count: int, outcome: str) -> None:
        """Say what was tried, how often, and what came of it; counts only if the test passes.

        Args:
            what: What was done, as a row of docs/reliability.md says it ("a bit flipped in
                model.json").
            count: How often it was tried.
            outcome: What came of it, with counts ("297 named the file, 3 changed nothing").
        """
        self.rows.append({"what": what, "count": count, "outcome": outcome})

    def written(self) -> str:
        """The rows as lines of JSON."""
        seconds = round(time.monotonic() - self._since)
        rows = ({"test": self.test, **row, "seconds": seconds, "seed": SEED} for row in self.rows)
        return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def sweep(request: pytest.FixtureRequest) -> Iterator[Sweep]:
    """The counts of this test, recorded under `make hostile` once it has passed."""
    root = Path(request.config.rootpath)
    found = Sweep(request.node.nodeid)
    yield found
    report = getattr(request.node, "hostile_report", None)
    if report is None or not report.passed:
        print(f"DISTCORE_SEED={SEED}")
        return
    assert found.rows, "a hostile test says what it tried: sweep.tried(…)"
    if SHARE:
        path = root / RECORD
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(found.written())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Let the fixture know how the test ended."""
    report = yield
    if report.when == "call":
        item.hostile_report = report
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that sweep are `hostile`: `make hostile` runs these."""
    for item in items:
        if "sweep" in getattr(item, "fixturenames", ()):
            item.add_marker("hostile")
