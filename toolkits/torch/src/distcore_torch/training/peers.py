"""Ranks that a launcher started watch each other: nobody of ours stands above them.

On each machine the first rank watches the others, and the second one the first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from distcore_core.io.temporaries import temporary_folder
from distcore_torch.training.heartbeat import FILE, Listener, open_heartbeat
from distcore_torch.training.stalls import Watch, Watched, end

if TYPE_CHECKING:
    from distcore_torch.training.strategy import Strategy

LOOK_SECONDS = 1.0


@contextmanager
def watching_each_other(strategy: Strategy, hang_seconds: float | None) -> Iterator[None]:
    """Inside, a rank that makes no progress is told by another one, and killed after `hang_seconds`.

    Every rank calls it, once it has met the others. Does nothing if a supervisor watches, or there is one rank."""
    if FILE in os.environ or strategy.rank.world == 1:
        yield
        return
    with temporary_folder("heartbeat") as folder:
        mine = Listener(folder / "heartbeat")
        open_heartbeat(str(mine.path))
        ranks = strategy.gather((_machine(), os.getpid(), str(mine.path)))
        watch = Watch(_others(ranks, strategy.rank.index), hang_seconds)
        strategy.gather(None)  # all have opened what they watch
        over = threading.Event()
        thread = threading.Thread(target=_look, args=(watch, over), name="distcore-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            open_heartbeat(None)
            watch.close()
            mine.close()


def _others(ranks: list[tuple[str, int, str]], mine: int) -> list[Watched]:
    """Those that this rank watches. ranks: (machine, process, heartbeat) of all."""
    here = [rank for rank, (machine, _, _) in enumerate(ranks) if machine == ranks[mine][0]]
    if mine not in here[:2] or len(here) < 2:
        return []
    watched = here[1:] if mine == here[0] else here[:1]
    return [Watched(rank, ranks[rank][1], Listener(Path(ranks[rank][2]), make=False)) for rank in watched]


def _look(watch: Watch, over: threading.Event) -> None:
    while not over.wait(LOOK_SECONDS):
        hung = watch.look()
        if hung is not None:
            watch.tell(f"{hung[1][0].upper()}{hung[1][1:]}; trainer.hang_seconds has passed, and it is ended.")
            end(hung[0])
            return


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{os.uname().nodename}-{boot.read_text().strip() if boot.exists() else 0}"
