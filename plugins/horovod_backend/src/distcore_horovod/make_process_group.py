"""This process's process group, of ranks that stay or of ranks that come and go."""

from __future__ import annotations

from distcore_horovod.elastic import ElasticProcessGroup
from distcore_horovod.launcher import Launched
from distcore_horovod.process_group import ProcessGroup

_process_group: list[ProcessGroup] = []


def process_group() -> ProcessGroup | None:
    """The process group that this process has joined, if any."""
    return _process_group[0] if _process_group else None


def join(launched: Launched) -> ProcessGroup:
    """This process's process group; joined once."""
    if not _process_group:
        _process_group.append(
            ElasticProcessGroup(launched) if launched.elastic else ProcessGroup(launched)
        )
    return _process_group[0]
