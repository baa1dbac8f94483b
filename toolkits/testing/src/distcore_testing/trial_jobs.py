"""What the suite of executors has trials do: nothing but to write down what they were given."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distcore_core.contracts import BACKEND, EXECUTOR, JSON, SearchJob
from distcore_core.registry.manager import Plugins
from distcore_search.records import ROUNDS, SearchWork, read_record, write_record
from distcore_search.rounds import add_round
from distcore_testing.rank_jobs import PATIENCE, until

SECONDS = 0.05
ROUNDS_OF_SLOW = 40


@dataclass(frozen=True, kw_only=True)
class QuickWork(SearchWork):
    """Of trials that train nothing. mode: see `quick_trial`. together: how many are waited for
    in the mode "beside"."""

    mode: str
    together: int = 1


def quick_trial(work: QuickWork, name: str, raw: Mapping[str, Any]) -> None:
    """A trial that trains nothing. Its loss is `layers` in every round.

    work.mode: "well": one round; "slow": many rounds with pauses; "beside": waits a little for
    others; "patient" and "bad": see the suite's test."""
    folder = work.folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    record = read_record(folder)
    if record.get("state") in ("finished", "failed", "stopped"):
        return
    record = {
        "name": name,
        "parameters": dict(raw),
        "raw": dict(raw),
        "attempts": record.get("attempts", 0) + 1,
    }
    write_record(folder, {**record, "state": "running"})
    mode, layers = work.mode, raw["layers"]
    if mode == "bad" and layers == 1:
        write_record(folder, {**record, "state": "failed", "error": "ValueError: as asked"})
        return
    if mode == "bad" and layers == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "patient" and layers == 2 and record["attempts"] == 1:
        (work.directory / "waiting").touch()
        time.sleep(PATIENCE)  # until it is killed, which a cluster may do after the search
    if mode == "beside":
        _beside(work.directory, name, work.together)
    rounds = ROUNDS_OF_SLOW if mode == "slow" else 1
    for number in range(1, rounds + 1):
        line = {
            "step": number,
            "epoch": number,
            "seconds": 0.1,
            "metrics": {"validation": {"y": {"loss": layers}}},
        }
        add_round(folder / ROUNDS, line)
        time.sleep(SECONDS * (mode == "slow"))
    if read_record(folder)["state"] != "stopped":
        write_record(
            folder, {**record, "state": "finished", "score": float(layers), "rounds": rounds}
        )


def search_in_a_group(
    job: SearchJob, name: str, options: JSON, backend: str, backend_options: JSON
) -> None:
    """Run a search in a process group of its own, which is killed as a whole."""
    os.setsid()
    plugins = Plugins()
    place = plugins.make(BACKEND, backend, backend_options)
    plugins.make(EXECUTOR, name, options).run(job, place, lambda name: None)


def _beside(directory: Path, name: str, together: int) -> None:
    """Note this trial's begin and end in `moments`, and wait between them for others."""

    def note(what: str) -> None:
        with open(directory / "moments", "a") as file:
            file.write(f"{what} {name}\n")

    note("begin")
    until(lambda: most_at_once(directory) >= together)
    until(lambda: most_at_once(directory) > together, seconds=0.3)
    note("end")


def most_at_once(directory: Path) -> int:
    """How many trials were under way at one moment."""
    running = most = 0
    for line in (directory / "moments").read_text().splitlines():
        running += 1 if line.startswith("begin") else -1
        most = max(most, running)
    return most
