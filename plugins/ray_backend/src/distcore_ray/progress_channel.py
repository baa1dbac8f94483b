"""The driver's side of what ranks report: numbers to the progress that is drawn, log lines to
the log."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import ray

from distcore_core.progress import Progress
from distcore_ray.coordinator import Following, News, open_coordinator
from distcore_ray.rank import RankReporter
from distcore_torch.training.progress_channel import Reporter


class RayProgressChannel:
    """Like `file_progress_channel`, over the cluster. coordinator: where the group meets, once it
    is entered."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.reporter: Reporter = RankReporter()
        self.coordinator: Any = None
        self._stack = ExitStack()
        self._begun = False
        self._rounds = 0

    def __enter__(self) -> RayProgressChannel:
        self.coordinator = self._stack.enter_context(open_coordinator())
        self._stack.callback(self._end)
        following = Following(self.coordinator, partial(self._heard, self.coordinator))
        self._stack.callback(following.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.coordinator = None

    def _heard(self, coordinator: Any, news: News) -> None:
        """coordinator: given, as a cluster that is lost is left while this still hears."""
        news.pass_on()
        if news.numbers is not None:
            news.numbers.show(self.progress, self._begun)
            self._begun = True
        if news.rounds > self._rounds:
            found = ray.get(
                coordinator.rounds_from.remote(self._rounds), timeout=Following.ANSWER_SECONDS
            )
            self._rounds += len(found)
            for each in found:
                self.progress.tell(each)

    def _end(self) -> None:
        if self._begun:
            self.progress.end()
