"""The session of a cluster that was started here: its processes, and its folder among Ray's
temporary files."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from distcore_core.errors import TrainingError
from distcore_data.temporaries import sweep_system

END_SECONDS = 10.0
"""How long processes of a cluster that was ended may take to follow it; Ray's agents notice it
after up to a minute."""

PULSE_SECONDS = 1.0
"""How long a connection may take when a part is felt, and how often that is done while Ray is
asked something."""

HEAD_SECONDS = 45.0
"""How long the head of another's cluster may be gone; Ray ends this process after 60."""

LATEST = "session_latest"
"""Ray's link to the session that was begun last."""

log = logging.getLogger("distcore")

T = TypeVar("T")


@dataclass(frozen=True)
class Session:
    """A cluster of ours, as it was before it was ended. processes: `psutil.Process`es, which
    outlive a reuse of ids."""

    folder: Path
    processes: tuple[Any, ...]

    def end(self, keep: bool) -> None:
        """See that all its processes are gone, and remove its folder.

        Args:
            keep: Leave its logs, and say where they are.
        """
        _end(self.processes, 0.0 if is_lost() else END_SECONDS)
        if is_lost():
            _end(_writing_in(self.folder), 0.0)
        sweep_system()  # what workers that were killed had made for themselves
        if keep:
            log.warning("Ray's own logs of this cluster are in %s", self.folder / "logs")
            return
        remove([self.folder])


def folders() -> set[Path]:
    """The folders of sessions that this process has begun, be it that they came no further."""
    from ray._common.utils import get_default_ray_temp_dir

    return set(Path(get_default_ray_temp_dir()).glob(f"session_*_{os.getpid()}"))


def remove(ended: Iterable[Path]) -> None:
    """Remove the folders of sessions that have ended."""
    for folder in ended:
        shutil.rmtree(folder, ignore_errors=True)
        latest = folder.parent / LATEST
        with suppress(OSError):  # another session may just have put its own link there
            if Path(os.readlink(latest)) == folder:
                latest.unlink()


def _end(processes: Sequence[Any], seconds: float) -> None:
    """Wait for processes so long, and kill those that still live."""
    import psutil

    _, living = psutil.wait_procs(processes, seconds)
    for each in living:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(living, END_SECONDS)


def _writing_in(folder: Path) -> list[Any]:
    """This user's processes with an open file below a folder: workers of a raylet that died are
    nobody's children."""
    import psutil

    found = []
    for each in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if each.pid != os.getpid() and any(
                Path(file.path).is_relative_to(folder) for file in each.open_files()
            ):
                found.append(each)
    return found


class Lost(TrainingError):
    """A part of the cluster is gone that this process cannot do without; Ray ends the process
    for it a while later."""


@dataclass
class Pulse:
    """Whether the parts of Ray that this process depends on are there: asked a few times a second.

    Ray's native library waits for them (gcs_server 60 seconds, raylet some ten) and then ends the
    process without a word of Python's. One of a cluster of ours does not come back; another's
    head may (KubeRay starts it again).

    Attributes:
        address: The cluster's, for the message.
        parts: The `host:port` that each part listens at.
        patience: For how many seconds nothing may listen there.
    """

    address: str
    parts: dict[str, str]
    patience: dict[str, float]
    _refused: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of_this_process(cls) -> Pulse:
        """The pulse of the cluster that this process is connected to."""
        from ray._private import worker

        node: Any = worker._global_node
        address = str(node.gcs_address)
        parts = {"gcs_server": address}
        if node.node_manager_port:
            parts["raylet"] = f"{node.node_ip_address}:{node.node_manager_port}"
        return cls(
            address, parts, {"gcs_server": 0.0 if node.is_head() else HEAD_SECONDS, "raylet": 0.0}
        )

    def feel(self) -> None:
        """Raise Lost, naming the part, if nothing listens at its port any more."""
        now = time.monotonic()
        for part, address in self.parts.items():
            if not _refused(address):
                self._refused.pop(part, None)
            elif now - self._refused.setdefault(part, now) >= self.patience[part]:
                _lost.append(part)
                raise Lost(
                    f"Training stopped: the {part} of the Ray cluster {self.address} is gone "
                    f"(nothing listens at {address} any more; it or a process that it depends on "
                    "was killed, or out of memory?)."
                )

    def during(self, call: Callable[[], T]) -> T:
        """What a call of Ray's gives: one that waits for a part that is gone would wait until the
        process is ended, so it waits in a thread, and the pulse is felt here. Raises what the call
        raises, and Lost."""
        answer: Future[T] = Future()

        def ask() -> None:
            try:
                answer.set_result(call())
            except BaseException as error:  # noqa: BLE001 - raised again by who asks
                answer.set_exception(error)

        threading.Thread(target=ask, name="distcore-ask", daemon=True).start()
        while not wait([answer], PULSE_SECONDS).done:
            self.feel()
        return answer.result()


_lost: list[str] = []
"""Parts that were found to be gone: Ray's own calls would wait for them."""


def is_lost() -> bool:
    """Whether the cluster that this process is connected to is of no use any more."""
    return bool(_lost)


def begin() -> None:
    """Another cluster is joined or started."""
    _lost.clear()


def forget() -> None:
    """Leave a cluster that is lost: Ray's own way would wait for it, now and when the process
    ends."""
    from ray._private import worker

    atexit.unregister(worker.shutdown)
    atexit.register(_end_at_once)
    worker._global_node = None


def _end_at_once() -> None:
    """Ray's threads are left, and crash the interpreter while it shuts down (SIGSEGV)."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _refused(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PULSE_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:  # too busy to say; whoever is gone refuses
        return False
    return False


def of_this_process() -> Session | None:
    """The session that this process has begun; None: Ray knows of none."""
    import psutil
    from ray._private import worker

    node = worker._global_node
    if node is None:
        return None
    found = []
    for each in (info.process.pid for infos in node.all_processes.values() for info in infos):
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(each)
            found += [first, *first.children(recursive=True)]
    return Session(Path(node.get_session_dir_path()), tuple(found))
