"""One rank: a process of its own beside a Ray worker, so that its exit code or signal is known, as
Ray never tells it.

    python -m distcore_ray.rank <descriptor of a socket to the worker>

What it says goes through the socket as (what, …): ("numbers", Numbers), ("round", Round), ("log",
level, text), and in the end one of ("result", value), ("stopped",), ("raised", text, the error
as `shipping.packed` bytes if another attempt would meet it, what the system said if a disk or a
limit is to blame).
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from distcore_core.contracts import Rank
from distcore_core.errors import DistcoreError
from distcore_core.progress import Progress
from distcore_data.blame import one_line
from distcore_data.os_errors import system_cause
from distcore_data.travelling import portable
from distcore_ray.shipping import Place, packed_result, unpacked
from distcore_torch.training import parents
from distcore_torch.training.progress_channel import Numbers, beside

SECONDS = 0.4
"""How often the numbers of training are told."""


@dataclass(frozen=True)
class Orders:
    """What the worker tells a rank first. payload: `shipping.packed` of (function, arguments).
    level: of its log."""

    place: Place
    rank: Rank
    payload: bytes
    level: int


class Line:
    """The rank's end of the socket; whoever talks waits for its turn. stop: the user asked to
    end."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._turn = connection, threading.Lock()
        self.stop = threading.Event()

    def say(self, *words: Any) -> None:
        """Send one message."""
        with self._turn:
            self._connection.send(words)

    def listen(self) -> None:
        """Hear that the user asks to stop. When the worker dies, so do we: nobody would hear of
        the result."""
        try:
            while True:
                self._connection.recv()
                self.stop.set()
        except (EOFError, OSError):
            os._exit(1)


_line: list[Line] = []
"""This process's, if it is a rank."""


class RankReporter:
    """A `progress_channel.Reporter` for ranks on a cluster: their numbers go through the socket."""

    @contextmanager
    def reporting(self) -> Iterator[Progress]:
        """A Progress that is told to the worker, and through it to the driver, until the block
        ends."""
        progress = Progress()
        if not _line:
            yield progress
            return
        progress.on_round.append(partial(_line[0].say, "round"))
        with beside(partial(_tell, _line[0], progress)):
            yield progress


def _tell(line: Line, progress: Progress, over: threading.Event) -> None:
    begun = False
    while True:
        last = over.wait(SECONDS)
        if line.stop.is_set():
            progress.stop = True
        begun = begun or bool(progress.stage)
        if begun:  # the last numbers are those of a stage that has ended
            line.say("numbers", Numbers.of(progress))
        if last:
            return


class _LogToWorker(logging.Handler):
    def __init__(self, line: Line, prefix: str) -> None:
        super().__init__()
        self.line, self.prefix = line, prefix

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.line.say("log", record.levelno, self.prefix + self.format(record))
        except Exception:  # noqa: BLE001 - what every handler does with what goes wrong in it
            self.handleError(record)


def main(descriptor: int) -> None:
    """Run the worker group's function; the exit code is 0 if it was told how that ended."""
    parents.die_with(os.getppid())
    connection = Connection(descriptor)
    orders: Orders = connection.recv()
    line = Line(connection)
    _line.append(line)
    threading.Thread(target=line.listen, name="distcore-worker", daemon=True).start()
    orders.place.enter()
    rank = orders.rank
    log = logging.getLogger("distcore")
    log.setLevel(orders.level if rank.index == 0 else max(logging.WARNING, orders.level))
    log.addHandler(_LogToWorker(line, f"Rank {rank.index}: " if rank.index else ""))
    try:
        function, arguments = unpacked(orders.payload)
        line.say("result", packed_result(function(rank, *arguments)))
    except KeyboardInterrupt:
        line.say("stopped")
    except (Exception, SystemExit) as error:
        lasting = isinstance(error, DistcoreError) and error.recurs
        sent = packed_result(portable(error, packed_result)) if lasting else None
        line.say("raised", one_line(error), sent, system_cause(error))
        logging.getLogger(__name__).exception("The rank's own error, for Ray's log of this worker")


if __name__ == "__main__":
    from distcore_ray import rank  # the module that others import, not this copy of it as __main__

    rank.main(int(sys.argv[1]))
