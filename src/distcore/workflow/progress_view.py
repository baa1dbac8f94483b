"""Draw a run's progress: bars on a terminal and in Jupyter, a plain line a stage otherwise.

A thread reads the `Progress` a few times a second; the work itself never draws and never waits.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import IO, Any

from distcore_core.progress import Progress

PERIOD = 0.2
"""Seconds between two looks; reading the loss of a GPU run waits for the device, so this stays coarse."""


class ProgressView:
    """Context manager that draws `progress` to standard error until it is left.

    style: "auto" (bars on a terminal or in Jupyter, else lines), "interactive" (bars there, else nothing), "bars",
    "lines" or "none"."""

    def __init__(self, progress: Progress, style: str = "auto", stream: IO[str] | None = None) -> None:
        self.progress = progress
        self.stream = stream or sys.stderr
        interactive = self.stream.isatty() or _in_jupyter()
        self.bars = style == "bars" or (style in ("auto", "interactive") and interactive)
        self.drawing = style != "none" and (interactive or style != "interactive")
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._finished = 0

    def __enter__(self) -> ProgressView:
        if self.drawing:
            self._thread = threading.Thread(target=self._draw, name="distcore-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _draw(self) -> None:
        if self.bars:
            self._draw_bars()
        else:
            self._draw_lines()

    def _draw_lines(self) -> None:
        while not self._stop.wait(PERIOD):
            self._print_finished()
        self._print_finished()

    def _print_finished(self) -> None:
        """A line for each stage that ended since the last look."""
        stages = self.progress.stages_finished
        for stage, rows, seconds in stages[self._finished :]:
            self.stream.write(line_of(stage, rows, seconds) + "\n")
            self._finished += 1
        self.stream.flush()

    def _draw_bars(self) -> None:
        # rich costs tens of milliseconds to import; only a terminal pays for it.
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description:<11}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[loss]}"),
        )
        console = Console(file=self.stream, force_jupyter=_in_jupyter() or None)
        with Bars(*columns, console=console, refresh_per_second=5) as bars:
            task: Any = None
            shown = ""
            while not self._stop.wait(PERIOD):
                progress = self.progress
                self._finished = len(progress.stages_finished)
                if not progress.stage:
                    continue
                if progress.stage != shown:
                    if task is not None:
                        bars.update(task, completed=bars.tasks[task].total or 1, total=bars.tasks[task].total or 1)
                    shown = progress.stage
                    task = bars.add_task(shown, total=progress.total, rate="", loss="")
                bars.update(
                    task, completed=progress.done, total=progress.total, rate=_rate(progress), loss=_loss(progress)
                )
            if task is not None:
                bars.update(task, completed=bars.tasks[task].total or 1, total=bars.tasks[task].total or 1)


def line_of(stage: str, rows: int, seconds: float) -> str:
    """`train       42,000 rows in 3.1 s (13.5 k rows/s)`; without rows, only the time."""
    if not rows:
        return f"{stage:<11} {seconds:.1f} s"
    return f"{stage:<11} {rows:,} rows in {seconds:.1f} s ({_short(rows / max(seconds, 1e-9))} rows/s)"


def _rate(progress: Progress) -> str:
    seconds = time.monotonic() - progress.started
    rows = progress.done * progress.rows_per_unit
    return f"{_short(rows / seconds)} rows/s" if rows and seconds > 0 else ""


def _loss(progress: Progress) -> str:
    loss = progress.loss
    return "" if loss is None else f"loss {float(loss):.4f}"


def _short(number: float) -> str:
    for unit in ("", " k", " M", " G"):
        if abs(number) < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g} T"


def _in_jupyter() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
