"""A gang under a launcher: its ranks are the launcher's processes, which run the function where they are."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import Gang, Member, TrainJob
from distcore_core.errors import DistcoreError, TrainingError
from distcore_core.signals import Stoppable, named, signal_of
from distcore_horovod.afterwards import say_afterwards

if TYPE_CHECKING:
    from distcore_horovod.crew import Crew

DEATH_SECONDS = 0.5
"""How long after the launcher's SIGTERM a rank that died is looked for; mpirun kills after a second."""


def run_part(crew: Crew, gang: Gang, meeting: tuple[str, int]) -> Any:
    """This rank's part of the gang. An error ends the crew: others wait in a collective that will never be whole."""
    from horovod.common.exceptions import HorovodInternalError

    if crew.rank >= gang.ranks:
        return None
    member = Member(crew.rank, gang.ranks, crew.launched.local_rank)
    crew.advice = partial(advice, gang)
    try:
        with says_why(crew), surroundings(member, crew, gang, meeting):
            return gang.function(member, *gang.arguments)
    except HorovodInternalError as error:
        raise crew.failure() from error
    except BaseException as error:
        crew.over = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            if crew.rank:
                crew.board.stops()
            elif isinstance(error, KeyboardInterrupt):
                say_afterwards(f"distcore: stopped by {named(signal_of(error))}. {crew.advice()}")
            crew.hvd.shutdown()
            raise
        told = str(error) if isinstance(error, DistcoreError) else f"{type(error).__name__}: {error}"
        crew.board.leave(told)
        crew.hvd.shutdown()  # fails what the others wait for
        if isinstance(error, DistcoreError):
            if not crew.rank:
                say_afterwards(f"distcore: {told}")
            raise
        reason = crew.board.reason()
        if not crew.rank:
            say_afterwards(f"distcore: Training stopped: {reason} {crew.advice()}")
        raise TrainingError(f"Training stopped: {reason}") from error


def advice(gang: Gang) -> str:
    """The last checkpoint of a gang that trains, and how to go on from it; "" for another gang."""
    job = next((each for each in gang.arguments if isinstance(each, TrainJob)), None)
    if job is None:
        return ""
    from distcore_torch.training.trainer import last_checkpoint

    return last_checkpoint(job)


def meeting_point(crew: Crew) -> tuple[str, int]:
    """A free port of the leader, for ranks that meet through torch's own variables (trainer ddp)."""
    name = "127.0.0.1" if len(set(crew.hosts)) == 1 else socket.gethostname()
    with socket.create_server((name, 0)) as listener:
        return name, listener.getsockname()[1]


@contextmanager
def surroundings(member: Member, crew: Crew, gang: Gang, meeting: tuple[str, int] | None = None) -> Iterator[None]:
    """Threads of a rank, and torch's variables (where ranks may meet through them), while the gang runs."""
    import torch

    threads = torch.get_num_threads()
    share = max(1, len(os.sched_getaffinity(0)) // crew.local_size)
    told: dict[str, Any] = {
        "RANK": member.rank,
        "WORLD_SIZE": member.world,
        "LOCAL_RANK": member.local_rank,
        "LOCAL_WORLD_SIZE": crew.local_size,
    }
    if meeting is not None:
        told |= {"MASTER_ADDR": meeting[0], "MASTER_PORT": meeting[1]}
    before = {name: os.environ.get(name) for name in told}
    torch.set_num_threads(gang.threads or share)
    os.environ.update({name: str(value) for name, value in told.items()})
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def says_why(crew: Crew) -> Iterator[None]:
    """A launcher ends all ranks (SIGTERM) when one died: let the leader say which, also while it waits in a collective.

    Python's handlers wait for the main thread; a thread that reads the wake-up pipe does not. If no rank is gone, it is
    the user who ends the launcher: the training loop hears of it, and saves. In elastic mode other ranks go on."""
    if crew.rank or threading.current_thread() is not threading.main_thread():
        yield
        return
    with Stoppable():
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        before = signal.getsignal(signal.SIGTERM)
        pipe = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if crew.launched.elastic:
            signal.signal(signal.SIGTERM, lambda signum, frame: None)
        threading.Thread(target=_watch, args=(crew, reading, pipe), name="distcore-end", daemon=True).start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(pipe)
            signal.signal(signal.SIGTERM, before)
            os.close(writing)


def _watch(crew: Crew, reading: int, pipe: int) -> None:
    """See the launcher's SIGTERM. pipe: who else wants to see signals; -1: nobody."""
    while number := os.read(reading, 1):
        elastic = crew.launched.elastic
        if pipe >= 0 and not (elastic and number[0] == signal.SIGTERM):
            os.write(pipe, number)
        if number[0] != signal.SIGTERM or crew.over:
            continue
        reason = crew.board.reason(ended=True) if elastic else crew.board.cause(DEATH_SECONDS)
        if reason is not None and not crew.over:
            crew.over = True
            crew.say_and_leave(f"{crew.ended_by_launcher}: {reason}")
    os.close(reading)
