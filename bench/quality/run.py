"""`make quality`: every dataset by every method, a process each; writes bench/quality/results.json
and docs/quality.md.

python -m bench.quality.run [--datasets iris,wine] [--seeds 3] [--jobs 2]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from bench.quality.datasets import ROWS, SUITE, Dataset
from bench.quality.methods import METHODS
from bench.quality.table import write

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"


def measured(dataset: Dataset, method: str, seeds: int, rows: int) -> dict[str, Any]:
    """{"seeds": what each reached, "peak_mb": of the process}, or {"error": its last line}."""
    words = [
        sys.executable,
        "-m",
        "bench.quality.methods",
        dataset.name,
        method,
        str(seeds),
        str(rows),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            words, stdout=out, stderr=err, env=environment, cwd=HERE.parents[1]
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            lines = err.read().decode(errors="replace").strip().splitlines()
            return {"error": lines[-1] if lines else f"exit code {process.returncode}"}
        return {
            "seeds": json.loads(out.read().splitlines()[-1]),
            "peak_mb": round(usage.ru_maxrss / 1024),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--datasets",
        help="names between commas, whose results replace those in results.json; default: all, "
        "anew",
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--rows", type=int, default=ROWS, help="rows that are drawn of a dataset with more"
    )
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    names = arguments.datasets.split(",") if arguments.datasets else [each.name for each in SUITE]
    found: dict[str, Any] = {"rows": arguments.rows, "seeds": arguments.seeds, "datasets": {}}
    if arguments.datasets and RESULTS.exists():
        before = json.loads(RESULTS.read_text())
        if any(before[name] != found[name] for name in ("rows", "seeds")):
            parser.error(f"{RESULTS} is of other rows or seeds: measure all datasets anew")
        found["datasets"] = {n: each for n, each in before["datasets"].items() if n not in names}
    lock = Lock()

    def one(dataset: Dataset, method: str) -> None:
        result = measured(dataset, method, arguments.seeds, arguments.rows)
        with lock:
            found["datasets"].setdefault(dataset.name, {})[method] = result
            RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
            print(dataset.name, method, result.get("error") or result["seeds"], flush=True)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = [
            pool.submit(one, each, method)
            for each in SUITE
            if each.name in names
            for method in METHODS
        ]
        for job in jobs:
            job.result()
    write(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
