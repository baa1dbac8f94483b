"""Ranks that nobody of ours stands above, as those of a launcher: they watch each other.

On each machine the first rank watches the others, and the second one the first; one that is alone
there watches itself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from distcore_data.temporaries import temporary_folder
from distcore_torch.signals import end_process
from distcore_torch.training.heartbeat import (
    FILE,
    WAITING,
    Listener,
    heartbeat,
    open_heartbeat,
)
from distcore_torch.training.meeting import machine, namespace
from distcore_torch.training.progress_channel import beside
from distcore_torch.training.stalls import Watch, Watched, end

if TYPE_CHECKING:
    from distcore_torch.training.strategy import Strategy

LOOK_SECONDS = 1.0


@contextmanager
def watching(
    strategy: Strategy, hang_seconds: float | None, last_words: Callable[[], str] = str
) -> Iterator[None]:
    """Inside, a rank that makes no progress is told, and ended after `hang_seconds`.

    Every rank calls it, once it has met the others. Does nothing if a supervisor watches.
    last_words(): which checkpoint rank 0 has saved, in a sentence."""
    if FILE in os.environ:
        yield
        return
    with temporary_folder("heartbeat") as folder:
        mine = Listener(folder / "heartbeat")
        open_heartbeat(str(mine.path))
        # Containers of one machine may share all but their processes, or their files.
        place = f"{machine()} {namespace('mnt')}"
        ranks = strategy.gather((place, os.getpid(), str(mine.path)))
        watch = Watch(_watched(ranks, strategy.rank.index), hang_seconds, world=len(ranks))
        strategy.gather(None)  # all have opened what they watch
        try:
            with beside(partial(_look, watch, last_words)):
                yield
        finally:
            heartbeat().doing(WAITING)  # who is done is not to blame, however long others take
            open_heartbeat(None)
            watch.close()
            mine.close()


def _watched(ranks: list[tuple[str, int, str]], mine: int) -> list[Watched]:
    """Those of this rank's place, if it is one that watches, and if their heartbeats can be
    opened. ranks: (place, process, heartbeat) of all."""
    here = [rank for rank, (place, _, _) in enumerate(ranks) if place == ranks[mine][0]]
    if mine not in here[:2]:
        return []
    ours = here if len(here) == 1 else here[1:] if mine == here[0] else here[:1]
    found = []
    for rank in here:
        _, process, path = ranks[rank]
        with suppress(OSError):
            listener = Listener(Path(path), make=False)
            found.append(Watched(rank, process, listener, ours=rank in ours))
    return found


def _look(watch: Watch, last_words: Callable[[], str], over: threading.Event) -> None:
    while not over.wait(LOOK_SECONDS):
        hung = watch.look()
        if hung is None:
            continue
        rank, standing = hung
        if rank.process != os.getpid():
            # Any other rank's end is told by the first, which saves the checkpoints.
            words = "" if rank.rank else f" {_checked(last_words)}"
            watch.tell(
                f"{standing[0].upper()}{standing[1:]}; trainer.hang_seconds has passed, and it is "
                f"ended.{words}"
            )
            end(rank)
        elif not end_process(f"Training stopped: {standing}. {_checked(last_words)}"):
            watch.tell(
                "trainer.hang_seconds has passed. Only the program that called distcore can end "
                f"this run: the process {rank.process} is its own."
            )
        return


def _checked(last_words: Callable[[], str]) -> str:
    """What it says; "" if the disk that holds the checkpoints is what does not answer."""
    with suppress(Exception):
        return last_words()
    return ""
