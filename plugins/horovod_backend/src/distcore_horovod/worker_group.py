"""A worker group under a launcher: its ranks are the launcher's processes, which run the
function where they are."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import Rank, TrainJob, WorkerGroup
from distcore_core.errors import DistcoreError, TrainingError
from distcore_data.blame import one_line
from distcore_data.threads import processors
from distcore_horovod.addresses import shared_address
from distcore_horovod.afterwards import say_afterwards
from distcore_torch.signals import Stoppable, named, signal_of
from distcore_torch.training.meeting import INTERFACES, free_port

if TYPE_CHECKING:
    from distcore_horovod.process_group import ProcessGroup

DEATH_SECONDS = 0.5
"""How long after the launcher's SIGTERM a rank that died is looked for; mpirun kills after a
second."""


def run_part(process_group: ProcessGroup, group: WorkerGroup, meeting: tuple[str, int]) -> Any:
    """This rank's part of the group. An error ends all processes: others wait in a collective
    for ever."""
    from horovod.common.exceptions import HorovodInternalError

    if process_group.rank >= group.ranks:
        return None
    rank = Rank(
        index=process_group.rank, world=group.ranks, local_rank=process_group.launched.local_rank
    )
    process_group.advice = partial(advice, group)
    try:
        with says_why(process_group), surroundings(rank, process_group, group, meeting):
            return group.function(rank, *group.arguments)
    except HorovodInternalError as error:
        raise process_group.failure() from error
    except BaseException as error:
        process_group.break_up()
        if isinstance(error, KeyboardInterrupt):
            if process_group.rank:
                process_group.error_channel.stops()
            else:
                # Now: the launcher kills a rank that takes longer than five seconds.
                say_afterwards(
                    f"distcore: stopped by {named(signal_of(error))}. {process_group.advice()}"
                )
            process_group.hvd.shutdown()
            raise
        told = str(error) if isinstance(error, DistcoreError) else one_line(error)
        process_group.error_channel.leave(told)
        process_group.hvd.shutdown()  # fails what the others wait for
        if isinstance(error, DistcoreError):
            if not process_group.rank:
                say_afterwards(f"distcore: {told}")
            raise
        reason = process_group.error_channel.reason()
        if not process_group.rank:
            say_afterwards(f"distcore: The run stopped: {reason} {process_group.advice()}")
        raise TrainingError(f"The run stopped: {reason}") from error


def advice(group: WorkerGroup) -> str:
    """The last checkpoint of a worker group that trains, and how to go on from it; "" for
    another worker group."""
    job = next((each for each in group.arguments if isinstance(each, TrainJob)), None)
    if job is None:
        return ""
    from distcore_torch.training.rank_process import last_checkpoint

    return last_checkpoint(job)


def meeting_point(process_group: ProcessGroup) -> tuple[str, int]:
    """A free port of the leader, for ranks that meet through torch's own variables (trainer
    data_parallel)."""
    address = shared_address(process_group.hosts)
    return address, free_port(address)


@contextmanager
def surroundings(
    rank: Rank,
    process_group: ProcessGroup,
    group: WorkerGroup,
    meeting: tuple[str, int] | None = None,
) -> Iterator[None]:
    """Threads of a rank, and torch's variables (if ranks may meet through them), while the
    worker group runs."""
    import torch

    threads = torch.get_num_threads()
    hosts = process_group.hosts[: rank.world]  # a group may have fewer ranks than the launcher
    here = hosts.count(hosts[rank.index])
    share = max(1, processors() // here)
    told: dict[str, Any] = {
        "RANK": rank.index,
        "WORLD_SIZE": rank.world,
        "LOCAL_RANK": rank.local_rank,
        "LOCAL_WORLD_SIZE": here,
    }
    if meeting is not None:
        told |= {"MASTER_ADDR": meeting[0], "MASTER_PORT": meeting[1]}
    before = {name: os.environ.get(name) for name in (*told, *INTERFACES)}
    torch.set_num_threads(group.threads or share)
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
def says_why(process_group: ProcessGroup) -> Iterator[None]:
    """A launcher ends all ranks (SIGTERM) when one died: let the leader say which, also while it
    waits in a collective.

    Python's handlers wait for the main thread; a thread that reads the wake-up pipe does not. If no
    rank is gone, it is the user who ends the launcher: the training loop hears of it, and saves.
    In elastic mode other ranks go on."""
    if process_group.rank or threading.current_thread() is not threading.main_thread():
        yield
        return
    with Stoppable():
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        before = signal.getsignal(signal.SIGTERM)
        pipe = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if process_group.launched.elastic:
            signal.signal(signal.SIGTERM, lambda signum, frame: None)
        threading.Thread(
            target=_watch, args=(process_group, reading, pipe), name="distcore-end", daemon=True
        ).start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(pipe)
            signal.signal(signal.SIGTERM, before)
            os.close(writing)


def _watch(process_group: ProcessGroup, reading: int, pipe: int) -> None:
    """See the launcher's SIGTERM. pipe: who else wants to see signals; -1: nobody."""
    while number := os.read(reading, 1):
        elastic = process_group.launched.elastic
        if pipe >= 0 and not (elastic and number[0] == signal.SIGTERM):
            os.write(pipe, number)
        if number[0] != signal.SIGTERM or process_group.over:
            continue
        reason = (
            process_group.error_channel.reason(ended=True)
            if elastic
            else process_group.error_channel.cause(DEATH_SECONDS)
        )
        if reason is not None and not process_group.over:
            process_group.over = True
            process_group.say_and_leave(f"{process_group.ended_by_launcher}: {reason}")
    os.close(reading)
