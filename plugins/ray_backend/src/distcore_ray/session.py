"""The session of a cluster that was started here: its processes, and its folder among Ray's temporary files."""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

END_SECONDS = 10.0
"""How long processes of a cluster that was ended may take to follow it; Ray's agents notice it after up to a minute."""

LATEST = "session_latest"
"""Ray's link to the session that was begun last."""

log = logging.getLogger("distcore")


@dataclass(frozen=True)
class Session:
    """A cluster of ours, as it was before it was ended. processes: `psutil.Process`es, which outlive a reuse of ids."""

    folder: Path
    processes: tuple[Any, ...]

    def end(self, keep: bool) -> None:
        """See that all its processes are gone, and remove its folder.

        Args:
            keep: Leave its logs, and say where they are.
        """
        import psutil

        _, living = psutil.wait_procs(self.processes, END_SECONDS)
        for each in living:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(living, END_SECONDS)
        if keep:
            log.warning("Ray's own logs of this cluster are in %s", self.folder / "logs")
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        latest = self.folder.parent / LATEST
        with suppress(OSError):  # another session may just have put its own link there
            if Path(os.readlink(latest)) == self.folder:
                latest.unlink()


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
