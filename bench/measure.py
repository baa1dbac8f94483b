"""Run commands in turn (A B, B A, …); keep what each printed, its time, and memory and processor
time of its whole tree.

A child says what it measured with `emit`. Machines are noisy, so only ratios within a round are
worth keeping: `compare` runs all variants of a round one after the other, reversed every second
round, and `Comparison` takes medians of ratios.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PERIOD = 0.02
"""Seconds between two looks at memory."""

TICKS = os.sysconf("SC_CLK_TCK")
MARK = "RESULT "
UNWANTED = ("PYTHONDONTWRITEBYTECODE",)
"""Not handed on to children: an editable install would be compiled anew in every run, an
installed one never is."""

Figures = dict[str, Any]


def emit(**figures: Any) -> None:
    """What a child measured: one line, in one write, since ranks may share the pipe."""
    sys.stdout.flush()
    os.write(1, f"{MARK}{json.dumps(figures)}\n".encode())


def keep_ahead() -> None:
    """Where this run goes before everything else (`--ahead`), let this session too: the scheduler
    shares processors out among sessions first. A process that is started in a session of its
    own, as torchrun's are, calls this itself."""
    group = Path("/proc/self/autogroup")
    if os.nice(0) < 0 and group.exists():
        group.write_text(str(os.nice(0)))


class Memory(threading.Thread):
    """Peak of the anonymous and shared memory (RssAnon + RssShmem) of a process tree, in MB;
    mapped files not counted."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.peak, self.done = pid, 0.0, threading.Event()

    def run(self) -> None:
        while not self.done.wait(PERIOD):
            self.peak = max(self.peak, sum(anonymous(pid) for pid in tree(self.pid)))


def tree(root: int) -> list[int]:
    """The process and all that descend from it."""
    found = [root]
    for pid in found:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children") as file:
                    found += map(int, file.read().split())
        except OSError:  # it ended while we looked
            continue
    return found


def anonymous(pid: int) -> float:
    """RssAnon + RssShmem of one process, MB."""
    total = 0
    try:
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += int(line.split()[1])
    except OSError:  # it ended while we looked
        return 0.0
    return total / 1024


def busy() -> float:
    """Core-seconds that all processors have worked since the machine was started."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICKS


def run(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    timeout: float = 1800,
    folder: Path | None = None,
) -> Figures:
    """One run. folder: made for it to run in, and removed when it has ended. Raises RuntimeError
    with what it said if it failed.

    Beside what it emitted (several lines are kept as `parts`): `wall` seconds, `cpu` seconds of it
    and its children, `peak_mb`, and `others`: the cores that everything else on the machine used
    meanwhile."""
    inherited = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    before, others, started = (
        resource.getrusage(resource.RUSAGE_CHILDREN),
        busy(),
        time.perf_counter(),
    )
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**inherited, "BENCH_STARTED": repr(time.time()), **(environment or {})},
        process_group=0,
        cwd=folder,
    )
    memory = Memory(process.pid)
    memory.start()
    try:
        out, err = process.communicate(timeout=timeout)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    wall = time.perf_counter() - started
    after, all_work = resource.getrusage(resource.RUSAGE_CHILDREN), busy() - others
    if folder is not None:
        shutil.rmtree(folder)
    memory.done.set()
    memory.join()
    if process.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with {process.returncode}:\n{out[-1000:]}\n{err[-3000:]}"
        )
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    parts = [json.loads(line[len(MARK) :]) for line in out.splitlines() if line.startswith(MARK)]
    figures: Figures = {"wall": wall, "cpu": cpu, "peak_mb": memory.peak}
    figures["others"] = max(0.0, (all_work - cpu) / wall)
    for part in parts:
        figures |= part
    if len(parts) > 1:
        figures["parts"] = parts
    return figures


class Comparison:
    """What every variant gave in every round. runs: {variant: [figures of round 0, of round 1,
    …]}."""

    def __init__(self) -> None:
        self.runs: dict[str, list[Figures]] = {}

    def add(self, name: str, figures: Figures) -> None:
        self.runs.setdefault(name, []).append(figures)

    def median(self, name: str, key: str) -> float:
        return statistics.median(each[key] for each in self.runs[name])

    def ratios(self, name: str, other: str, key: str) -> list[float]:
        """`name`'s figure over `other`'s in each round."""
        return [
            mine[key] / theirs[key]
            for mine, theirs in zip(self.runs[name], self.runs[other], strict=True)
        ]

    def others(self, *names: str) -> float:
        """Median of the cores that everything else used while these ran."""
        return statistics.median(each["others"] for name in names for each in self.runs[name])


def compare(
    variants: Mapping[str, Sequence[str]],
    rounds: int,
    key: str,
    environment: Mapping[str, Mapping[str, str]] | None = None,
    timeout: float = 1800,
    folder: Path | None = None,
) -> Comparison:
    """Run every variant once a round. key: the figure to tell while running. environment: of
    each variant. folder: as for `run`."""
    found = Comparison()
    for number in range(rounds):
        names = list(variants)
        for name in names if number % 2 == 0 else reversed(names):
            figures = run(variants[name], (environment or {}).get(name), timeout, folder)
            found.add(name, figures)
            told = (
                f"{key} {figures[key]:.4g}, cpu {figures['cpu']:.2f} s, {figures['peak_mb']:.0f} MB"
            )
            say(f"  round {number}  {name:24s} {told}, others {figures['others']:.2f}")
    return found


def say(text: str) -> None:
    """Progress, for whoever watches."""
    print(text, file=sys.stderr, flush=True)
