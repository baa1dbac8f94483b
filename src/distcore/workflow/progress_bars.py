"""Bars: on a terminal by rich, in a notebook as a text that is replaced in its place; under them
the latest rounds."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from distcore.workflow.progress_text import closing, loss_of, rate_of, round_line, time_of
from distcore_core.progress import Progress
from distcore_data.figures import duration, several

if TYPE_CHECKING:
    from rich.console import RenderableType

SHOWN = 10
"""So many rounds, the latest, stand under the bars; `training_log.jsonl` has them all."""

WIDTH = 30
"""Characters of a notebook's bar."""


def rounds_below(progress: Progress, over: bool, count: int = SHOWN) -> list[str]:
    """What stands under the bars: the latest `count` rounds, which is at least 1. over: how
    training ended as well."""
    rounds = progress.rounds
    earlier = len(rounds) - count
    lines = [f"({several(earlier, 'earlier round')})"] if earlier > 0 else []
    lines += [round_line(each) for each in rounds[-count:]]
    return [*lines, closing(rounds)] if over and rounds else lines


def trained(progress: Progress) -> bool:
    """Whether the training of this run has ended by itself."""
    return any(each.name == "train" for each in progress.stages_finished)


class TerminalBars:
    """rich's bars; it costs tens of milliseconds to import, and only a terminal pays for it."""

    def __init__(self, progress: Progress, bars: Any) -> None:
        self._progress, self._bars = progress, bars
        self._finished = 0
        self._task: Any = None

    @classmethod
    @contextmanager
    def open(cls, progress: Progress, stream: IO[str]) -> Iterator[TerminalBars]:
        """Draw until the block ends; `look` brings what is drawn up to date."""
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars
        from rich.text import Text

        console = Console(file=stream)

        class BarsAndRounds(Bars):
            whole = False

            def get_renderables(self) -> Iterable[RenderableType]:
                yield from super().get_renderables()
                # What the screen has no room for would be cut off at its end, the latest rounds.
                for count in range(SHOWN, 0, -1):
                    lines = [
                        Text(each) for each in rounds_below(progress, trained(progress), count)
                    ]
                    rows = sum(len(each.wrap(console, console.width)) for each in lines)
                    if self.whole or len(self.tasks) + rows <= console.height:
                        break
                yield from lines

        columns = (
            TextColumn("{task.description:<11}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[time]}"),
            TextColumn("{task.fields[loss]}"),
        )
        with BarsAndRounds(*columns, console=console, refresh_per_second=5) as bars:
            drawn = cls(progress, bars)
            yield drawn
            drawn.look()
            bars.whole = True  # what is drawn last may be higher than the screen

    def look(self) -> None:
        """Bring the bars of stages that ended, and of the one under way, up to date."""
        progress, bars = self._progress, self._bars
        for stage in progress.stages_finished[self._finished :]:
            task = self._task if self._task is not None else self._added(stage.name)
            total = bars.tasks[bars.task_ids.index(task)].total or 1
            bars.update(
                task,
                completed=stage.share * total,
                total=total,
                time=duration(stage.seconds, rough=True),
            )
            self._task, self._finished = None, self._finished + 1
        if not progress.stage:
            return
        if self._task is None:
            self._task = self._added(progress.stage)
        bars.update(
            self._task,
            completed=progress.done,
            total=progress.total,
            rate=rate_of(progress),
            loss=loss_of(progress),
            time=time_of(progress),
        )

    def _added(self, name: str) -> Any:
        return self._bars.add_task(name, total=None, rate="", loss="", time="")


class NotebookBars:
    """Plain text in one place of a notebook: the same with and without ipywidgets, which rich
    would ask for."""

    def __init__(self, progress: Progress, handle: Any) -> None:
        self._progress, self._handle, self._shown = progress, handle, ""

    @classmethod
    @contextmanager
    def open(cls, progress: Progress) -> Iterator[NotebookBars]:
        """Draw until the block ends."""
        from IPython.display import display

        drawn = cls(progress, display({"text/plain": ""}, raw=True, display_id=True))
        yield drawn
        drawn.look()

    def look(self) -> None:
        """Replace the text if it has changed."""
        text = "\n".join(self._lines())
        if text != self._shown:
            self._shown = text
            self._handle.update({"text/plain": text}, raw=True)

    def _lines(self) -> Iterator[str]:
        progress = self._progress
        for stage in progress.stages_finished:
            yield f"{_bar(stage.name, stage.share)}  {duration(stage.seconds, rough=True)}"
        if progress.stage:
            share = min(1.0, progress.done / progress.total) if progress.total else 0.0
            parts = (rate_of(progress), time_of(progress), loss_of(progress))
            yield "  ".join([_bar(progress.stage, share), *filter(None, parts)])
        yield from rounds_below(progress, trained(progress))


def _bar(name: str, share: float) -> str:
    filled = round(share * WIDTH)
    return f"{name:<11} {'█' * filled}{'·' * (WIDTH - filled)} {share:4.0%}"


def in_jupyter() -> bool:
    """Whether this process is a notebook's kernel."""
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
