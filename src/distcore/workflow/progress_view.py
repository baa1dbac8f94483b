"""Draw a run's progress: bars on a terminal and in Jupyter, plain lines otherwise.

A thread reads the `Progress` a few times a second; the work itself never draws and never waits.
"""

from __future__ import annotations

import contextvars
import io
import sys
import threading
import time
from typing import IO

from distcore.workflow.progress_bars import NotebookBars, TerminalBars, in_jupyter
from distcore.workflow.progress_text import closing, line_of, round_line, status_of
from distcore_core.progress import Progress

PERIOD = 0.2
"""Seconds between two looks; reading the loss of a GPU run waits for the device, so this stays
coarse."""

SILENCE = 30.0
"""Seconds without a line after which one says where the stage under way is."""


class ProgressView:
    """Context manager that draws `progress` to standard error until it is left.

    style: "auto" (bars on a terminal or in Jupyter, else lines), "interactive" (bars there, else
    nothing), "bars", "lines" or "none"."""

    def __init__(
        self, progress: Progress, style: str = "auto", stream: IO[str] | None = None
    ) -> None:
        self.progress = progress
        self.stream = _open(stream or sys.stderr)
        # What a program puts in place of standard error may do no more than write.
        terminal = hasattr(self.stream, "isatty") and self.stream.isatty()
        interactive = terminal or in_jupyter()
        self.bars = style == "bars" or (style in ("auto", "interactive") and interactive)
        self.drawing = style != "none" and (interactive or style != "interactive")
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._finished = self._rounds = 0
        self._spoken = time.monotonic()

    def __enter__(self) -> ProgressView:
        if self.drawing:
            # A notebook's kernel finds the cell that output belongs to in the context.
            draw = contextvars.copy_context().run
            self._thread = threading.Thread(
                target=draw, args=(self._draw,), name="distcore-progress", daemon=True
            )
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

    def _draw_bars(self) -> None:
        opened = (
            NotebookBars.open(self.progress)
            if in_jupyter()
            else TerminalBars.open(self.progress, self.stream)
        )
        with opened as bars:
            while not self._stop.wait(PERIOD):
                bars.look()

    def _draw_lines(self) -> None:
        while not self._stop.wait(PERIOD):
            self._print_news()
        self._print_news()

    def _print_news(self) -> None:
        """A line for each round and each stage that ended since the last look, or after a long
        silence."""
        ended = self.progress.stages_finished[self._finished :]
        rounds = self.progress.rounds[self._rounds :]
        for each in rounds:
            self._print(round_line(each))
        self._rounds += len(rounds)
        for stage in ended:
            self._print(line_of(stage))
            if stage.name == "train" and (how := closing(self.progress.rounds)):
                self._print(how)
        self._finished += len(ended)
        if self.progress.stage and time.monotonic() - self._spoken > SILENCE:
            self._print(status_of(self.progress))

    def _print(self, line: str) -> None:
        self.stream.write(line + "\n")
        self.stream.flush()
        self._spoken = time.monotonic()


def _open(stream: IO[str] | None) -> IO[str]:
    """The stream, or one that nobody reads where a service has none or has closed it."""
    return io.StringIO() if stream is None or getattr(stream, "closed", False) else stream
