"""A launcher's processes as one: rank 0 leads and tells the story, the others wait for its orders
and do their part.

An order is a function with arguments that every rank calls with the process group, itself included.
Orders travel as Horovod broadcasts, over connections that were made when all ranks met: no port is
open for anybody else. Errors of a rank in a task are results; an error in a worker group, if others
wait in a collective, ends the process group (`failure`). A process group whose ranks come and go is
`elastic.ElasticProcessGroup`.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, NoReturn

import cloudpickle

from distcore_core.errors import TrainingError, UserError
from distcore_horovod.afterwards import find_launcher, say_afterwards
from distcore_horovod.error_channel import ErrorChannel
from distcore_horovod.failure import Failed, failed
from distcore_horovod.installed import require
from distcore_horovod.launcher import Launched
from distcore_horovod.processes import end_horovodruns_child, end_with_shell
from distcore_torch.signals import Stoppable, named, signal_of
from distcore_torch.training.meeting import machine

STALL_SECONDS = "1800"
"""How long ranks may wait for one another before Horovod says so: followers wait while the
leader prepares."""

MOST_BYTES = 2**31 - 1
"""That a rank gives or takes in an all-to-all, which counts in 32 bits."""

AT_ONCE_BYTES = 1 << 30
"""That ranks give each other in one other collective: Horovod counts in 32 bits there, too."""

MPI_NETWORKS = {"tcp", "openib", "uct", "usnic", "ofi"}
"""What Open MPI's ranks listen with on every interface, also if they are all on one machine, and
need not there."""

log = logging.getLogger("distcore")


class Broken(Exception):
    """The ranks of an elastic process group cannot go on together: one is lost, or has failed.
    They meet again."""


class ProcessGroup:
    """The processes that a launcher started, joined in Horovod. launched: who this is."""

    ended_by_launcher = "The run stopped"
    """What it means if the launcher ends the leader's process."""

    def __init__(self, launched: Launched) -> None:
        require()
        os.environ.setdefault("HOROVOD_STALL_CHECK_TIME_SECONDS", STALL_SECONDS)
        if (
            os.environ.get("HOROVOD_GLOO_TIMEOUT_SECONDS", "30") == "30"
        ):  # horovodrun's default; a busy machine is slower
            os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = "300"
        if launched.local_size == launched.size:
            share_memory_alone(os.environ)
        find_launcher()
        if launched.by == "mpirun":
            end_with_shell()
        elif launched.rank == 0:
            atexit.register(_end_the_launcher_too)
        import horovod.torch as hvd

        self.launched, self.hvd = launched, hvd
        self.over = False
        self.advice: Callable[[], str] = str
        """For the end of a worker group: its last checkpoint, and how to go on from it."""
        self.hosts: list[str] = []
        self.processes: list[int] = []
        self.meet()

    def meet(self) -> None:
        """Join the other ranks in Horovod; afterwards all know each other."""
        refuse_without_mpi(self.launched, self.hvd)
        self.hvd.init()
        check_size(self.launched, self.hvd)
        self.introduce(self.hvd.allgather_object((machine(), os.getpid()), name="distcore.hosts"))

    def introduce(self, ranks: Sequence[tuple[str, int]]) -> None:
        """Remember (machine, process) of every rank, in rank order, and open the error channel."""
        self.hosts = [host for host, _ in ranks]
        self.processes = [process for _, process in ranks]
        self.error_channel = self.open_error_channel()
        if self.rank == 0:
            # Ours must run before Horovod's own, which hvd.init() registers: the last registered is
            # the first to run.
            atexit.unregister(self.end)
            atexit.register(self.end)

    def open_error_channel(self) -> ErrorChannel:
        """Where a rank that must end says why."""
        return ErrorChannel.open(self.hvd, self.rank, self.hosts, self.processes)

    @property
    def rank(self) -> int:
        return self.launched.rank

    @property
    def size(self) -> int:
        return self.launched.size

    @property
    def local_size(self) -> int:
        """Ranks on this machine."""
        return self.hosts.count(self.hosts[self.rank])

    # -------------------------------------------------------------- the leader

    def everywhere(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """function(process group, *arguments) in every rank; results in rank order, or the first
        failure is raised."""
        if self.over:
            raise TrainingError(
                "The launcher's other processes have ended. Start the command again."
            )
        order = cloudpickle.dumps((function, arguments))
        try:
            self._tell(order)
            found = self._gather(self._carried_out(function, arguments))
        except BaseException as error:
            # A signal to this rank alone: the others would wait for its part.
            if not (self.over or isinstance(error, Exception)):
                self.break_up()
                self.error_channel.stops()
                self.hvd.shutdown()
            raise
        for each in found:
            if isinstance(each, Failed):
                each.raised()
        return found

    def end(self) -> None:
        """Let the followers go."""
        if not self.over:
            self.over = True
            self._tell(b"")
            self.hvd.shutdown()

    # -------------------------------------------------------------- the followers

    def follow(self) -> None:
        """Carry out orders until the leader's process ends; then this one ends too, with exit
        code 0."""
        log.setLevel(logging.WARNING)  # the leader tells the story
        while order := self._told():
            self._obey(order)
        self._leave()

    def _obey(self, order: bytes) -> None:
        """Do this rank's part of an order, and give the leader what came of it."""
        try:
            function, arguments = cloudpickle.loads(order)
        except Exception as error:  # noqa: BLE001 - the leader is told
            self._gather(failed(self.rank, error))
        else:
            self._gather(self._part_of(function, arguments))

    def _leave(self) -> NoReturn:
        self.over = True
        self.hvd.shutdown()
        raise SystemExit(0)

    def _part_of(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """A follower's part; if the process group is over after it, so is this process, and the
        leader says why."""
        try:
            return self._carried_out(function, arguments)
        except BaseException as error:
            if not self.over:
                raise
            if isinstance(error, KeyboardInterrupt):
                leave_process(128 + signal_of(error))
            leave_process(1)

    # -------------------------------------------------------------- inside

    def _carried_out(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        try:
            return function(self, *arguments)
        except Exception as error:
            if self.over or isinstance(error, Broken):
                raise
            return failed(self.rank, error)

    def _tell(self, order: bytes) -> None:
        """In pieces: after a full one another comes, which may be empty."""
        for start in range(0, len(order) + 1, AT_ONCE_BYTES):
            self._broadcast(order[start : start + AT_ONCE_BYTES])

    def _told(self) -> bytes:
        pieces = [self._broadcast(None)]
        while len(pieces[-1]) == AT_ONCE_BYTES:
            pieces.append(self._broadcast(None))
        return b"".join(pieces)

    def _broadcast(self, piece: bytes | None) -> bytes:
        return self._lost(
            lambda: self.hvd.broadcast_object(piece, root_rank=0, name="distcore.order")
        )

    def _gather(self, value: Any) -> list[Any]:
        """Every rank's value, in the leader; the others need none."""
        return self._lost(lambda: gathered(self.hvd, value, self.rank, self.size))

    def _lost(self, call: Callable[[], Any]) -> Any:
        """Turn the loss of a rank into an error that names it."""
        from horovod.common.exceptions import HorovodInternalError

        try:
            return call()
        except HorovodInternalError as error:
            raise self.failure() from error

    def failure(self) -> Exception:
        """The process group is over; what the leader raises. A follower's process ends."""
        self.break_up()
        if self.rank:
            self.follower_lost()
        reason = self.error_channel.reason()
        say_afterwards(f"distcore: The run stopped: {reason} {self.advice()}")
        return TrainingError(f"The run stopped: {reason}")

    def break_up(self) -> None:
        """There are no more orders. The launcher ends all ranks (SIGTERM): first say why."""
        self.over = True
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def follower_lost(self) -> NoReturn:
        """End a follower whose process group broke. If the leader is gone, who else would say
        it."""
        if self.error_channel.speaks_for_the_leader():
            self.say_and_leave(f"The run stopped: {self.error_channel.gone()}")
        leave_process(1)

    def say_and_leave(self, words: str) -> NoReturn:
        """End this process with these words, the last checkpoint, and how to go on."""
        said = f"distcore: {words} {self.advice()}".rstrip()
        sys.stderr.write(said + "\n")  # one write: another thread may be at its own line
        sys.stderr.flush()
        say_afterwards(said)
        leave_process(1)


def _end_the_launcher_too() -> None:
    """At the end of the leader's process, if a signal came."""
    active = Stoppable.active
    if active is not None and active.received:
        done = f"distcore: it was done when {named(active.received)} came."
        say_afterwards(active.last_line or done)
        if active.last_line:
            end_horovodruns_child()


def share_memory_alone(environment: MutableMapping[str, str]) -> None:
    """Have Open MPI's ranks listen nowhere: all are on one machine. A list of what to use is
    left as it is."""
    given = environment.get("OMPI_MCA_btl", "^")
    if given.startswith("^"):
        left_out = {each for each in given[1:].split(",") if each} | MPI_NETWORKS
        environment["OMPI_MCA_btl"] = f"^{','.join(sorted(left_out))}"
    environment.setdefault("OMPI_MCA_pml", "^ucx,cm")


def refuse_without_mpi(said: Launched, hvd: Any) -> None:
    """Raise UserError if an MPI started the processes and Horovod cannot or may not use it."""
    alone = f"would train {said.size} separate models"
    if said.by != "mpirun" or said.size == 1:
        return
    if not hvd.mpi_built():
        raise UserError(
            f"mpirun started {said.size} processes, but the installed Horovod has no MPI and "
            f"{alone}. Start with horovodrun, or build one with MPI: distcore-horovod build --mpi "
            "yes --install"
        )
    if os.environ.get("HOROVOD_CONTROLLER", "mpi") != "mpi":
        raise UserError(
            f"mpirun started {said.size} processes, but HOROVOD_CONTROLLER is "
            f"{os.environ['HOROVOD_CONTROLLER']} and {alone}. Unset it, or start with horovodrun."
        )


def check_size(said: Launched, hvd: Any) -> None:
    """Raise UserError if Horovod joined other ranks than the launcher started."""
    if (hvd.rank(), hvd.size()) != (said.rank, said.size):
        raise UserError(
            f"{said.by} started rank {said.rank} of {said.size}, but Horovod says rank "
            f"{hvd.rank()} of {hvd.size()}. Start again without HOROVOD_ variables in the "
            "environment."
        )


def leave_process(code: int) -> NoReturn:
    """End this process at once: an orderly end would wait for ranks that are gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def gathered(hvd: Any, value: Any, rank: int, size: int) -> list[Any]:
    """Every rank's value in rank 0, through one all-to-all in which only rank 0 receives; []
    elsewhere."""
    import numpy as np
    import torch

    # Where MPI lays what comes is an int32, too.
    answer = _dumped(value, rank, MOST_BYTES // size)
    packed = torch.from_numpy(np.frombuffer(answer, np.uint8).copy())
    splits = torch.zeros(size, dtype=torch.int32)
    splits[0] = packed.numel()
    received, sizes = hvd.alltoall(packed, splits, name="distcore.gather.results")
    if rank:
        return []
    return [cloudpickle.loads(part.numpy().tobytes()) for part in received.split(sizes.tolist())]


def _dumped(value: Any, rank: int, most_bytes: int) -> bytes:
    """The value for the leader; if it cannot travel, an error that says so."""
    try:
        found = cloudpickle.dumps(value)
        if len(found) <= most_bytes:
            return found
        why = f"it has {len(found)} bytes, and Horovod carries {most_bytes} at most"
    except Exception as error:  # noqa: BLE001 - becomes the rank's answer
        why = str(error)
    return cloudpickle.dumps(failed(rank, TypeError(f"rank {rank}'s result cannot travel: {why}")))
