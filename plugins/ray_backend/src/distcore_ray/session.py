"""A cluster that this process uses: its settings here, and, if it was started here, its processes
and its folder among Ray's temporary files."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distcore_data.processes import children_of
from distcore_data.temporaries import sweep_system
from distcore_ray import pulse, settings
from distcore_torch.signals import Stoppable

END_SECONDS = 10.0
"""How long processes of a cluster that was ended may take to follow it; Ray's agents notice it
after up to a minute."""

LATEST = "session_latest"
"""Ray's link to the session that was begun last."""

log = logging.getLogger("distcore")


def child_processes() -> set[int]:
    """The processes that this one has started and that have not ended."""
    return children_of(os.getpid())


def session_folders() -> set[Path]:
    """The folders of sessions that this process may have begun, be it that they came no further.

    They are known by its number, which the process of another container that sees the same files
    may have, too."""
    from ray._common.utils import get_default_ray_temp_dir

    return set(Path(get_default_ray_temp_dir()).glob(f"session_*_{os.getpid()}"))


@dataclass
class Session:
    """What there was before a cluster was joined or started, so that everything that came since
    can end.

    Attributes:
        starting: A cluster is being started: Ray does not know of all of it yet, and every new
            child of this process is Ray's.
    """

    starting: bool
    _settings: settings.Before = field(default_factory=settings.begin)
    _children: set[int] = field(default_factory=child_processes)
    _folders: set[Path] = field(default_factory=session_folders)
    _own: set[Path] = field(default_factory=set)

    def begin(self) -> None:
        """From here on it ends when this process does, if nobody ends it before: a signal may come
        just before somebody would."""
        pulse.begin()
        atexit.register(self.end)

    def started(self) -> None:
        """A cluster has been started, and Ray knows of all of it."""
        from ray._private import worker

        node: Any = worker._global_node
        self.starting = False
        self._own = {Path(node.get_session_dir_path())}

    def end(self, keep: bool = False) -> None:
        """Leave the cluster; one that was started here ends: its processes are gone, and its
        folder is.

        Args:
            keep: Leave its logs, and say where they are.
        """
        self.end_processes(keep)
        settings.end(self._settings)
        atexit.unregister(self.end)
        if self.starting and _received():
            atexit.register(_end_at_once)  # Ray may have begun threads that it does not know of

    def end_processes(self, keep: bool) -> None:
        """As `end`, and another cluster can be started at once."""
        known = _known_to_ray()
        leave()
        _end(known, 0.0 if pulse.is_lost() else END_SECONDS)
        folders = session_folders() - self._folders if self.starting else self._own
        while (found := self._unknown_to_ray(folders)) and _end(found, 0.0):
            pass
        for folder in folders:
            if keep:
                log.warning("Ray's own logs of this cluster are in %s", folder / "logs")
            else:
                _remove(folder)
        if folders:
            sweep_system()  # what workers that were killed had made for themselves

    def _unknown_to_ray(self, folders: set[Path]) -> list[Any]:
        """What is left: a process whose parent died is nobody's child, and an agent that is only
        just starting would make its session's folder again."""
        import psutil

        new = child_processes() - self._children if self.starting else set()
        if not new and not folders:
            return []
        return [
            each
            for each in psutil.process_iter()
            if each.pid in new or any(_is_at_work(each, folder) for folder in folders)
        ]


def _is_at_work(process: Any, folder: Path) -> bool:
    """Whether another process has a folder among its options, or writes below it."""
    import psutil

    with suppress(psutil.Error, OSError):
        return process.pid != os.getpid() and (
            any(word.startswith("-") and str(folder) in word for word in process.cmdline())
            or any(
                file.mode != "r" and Path(file.path).is_relative_to(folder)
                for file in process.open_files()
            )
        )
    return False


def _remove(folder: Path) -> None:
    """Remove the folder of a session that has ended."""
    shutil.rmtree(folder, ignore_errors=True)
    latest = folder.parent / LATEST
    with suppress(OSError):  # another session may just have put its own link there
        if Path(os.readlink(latest)) == folder:
            latest.unlink()


def _known_to_ray() -> list[Any]:
    """What Ray knows to have started here, and their children: `psutil.Process`es, which outlive a
    reuse of ids."""
    import psutil
    from ray._private import worker

    found: list[Any] = []
    node = worker._global_node
    started: list[Any] = [] if node is None else [*itertools.chain(*node.all_processes.values())]
    for each in started:
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(each.process.pid)
            found += [first, *first.children(recursive=True)]
    return found


def _end(processes: Sequence[Any], seconds: float) -> bool:
    """Wait for processes so long, and kill those that still live. Returns whether all are gone."""
    import psutil

    _, living = psutil.wait_procs(processes, seconds)
    for each in living:
        with suppress(psutil.Error):
            each.kill()
    return not psutil.wait_procs(living, END_SECONDS)[1]


def leave() -> None:
    """Leave the cluster that this process is connected to, if it is; one that it started ends.

    Ray's own way would wait for a cluster that is lost, now and when the process ends."""
    import ray
    from ray._private import worker

    if pulse.is_lost():
        atexit.unregister(worker.shutdown)
        atexit.register(_end_at_once)
        worker._global_node = None
        return
    if hasattr(worker.global_worker, "core_worker"):
        with settings.sigterm_kept():
            worker.disconnect()
            worker.global_worker.core_worker.shutdown_driver()
            del worker.global_worker.core_worker
    ray.shutdown()


def _end_at_once() -> None:
    """Ray's threads are left, and crash the interpreter while it shuts down (SIGSEGV)."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(128 + _received() if _received() else 1)


def _received() -> int:
    """The signal that ends this process, or 0."""
    active = Stoppable.active
    return active.received if active is not None and active.owns_process else 0
