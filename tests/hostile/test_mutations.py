"""Mutated files of every format: read, or refused in words; no crash, no error that is not ours,
bounded memory and time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.hostile.conftest import SEED
from tests.hostile.mutated import FORMAT, KINDS

ROOT = Path(__file__).parents[2]
TOGETHER = 2000
"""Mutations that one child reads."""

HANGS = 300
"""Seconds without progress from which on a child hangs."""

GROWN = 1 << 30


def share(kind):
    """How many of the mutations of its format, of which it is one way of writing."""
    return -(-20_000 // sum(FORMAT[each] == FORMAT[kind] for each in KINDS))


def child(kind, first, count, folder):
    """(what the child printed, or None if it died; the number of the mutation it was at; how it
    died)."""
    words = [
        sys.executable,
        "-m",
        "tests.hostile.mutated",
        kind,
        str(SEED),
        str(first),
        str(count),
        str(folder),
    ]
    (folder / "at").write_text("-1")
    with open(folder / "said", "w+b") as said:
        process = subprocess.Popen(
            words, cwd=ROOT, stdout=said, stderr=said, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        at = None
        while process.poll() is None:
            try:
                process.wait(HANGS)
            except subprocess.TimeoutExpired:
                now = int((folder / "at").read_text())
                if now == at:
                    process.kill()
                at = now
        said.seek(0)
        text = said.read().decode(errors="replace").strip()
    at = int((folder / "at").read_text())
    if process.returncode == 0:
        return json.loads(text.splitlines()[-1]), at, ""
    return None, at, f"{kind} {at}: exit code {process.returncode} {text[-300:]}"


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_files(tmp_path, sweep, kind):
    count, first, crashes = sweep.times(60, share(kind)), 0, []
    ends = {"read": 0, "refused": 0, "raw": 0}
    while first < count and len(crashes) < 20:
        found, at, died = child(kind, first, min(TOGETHER, count - first), tmp_path)
        if found is None:
            crashes.append(died)
            assert at >= first, died
            first = at + 1
            continue
        for name in ends:
            ends[name] += found[name]
        assert found["grown"] < GROWN, found
        first += TOGETHER
    assert not crashes, "\n".join(crashes)
    raw = tmp_path / "raw"
    assert not raw.exists(), raw.read_text()[:4000]
    sweep.tried(
        f"a {kind} file mutated (bits, extremes, cuts, splices)",
        count,
        f"{ends['read']:,} read, {ends['refused']:,} refused in words, 0 crashes",
    )
