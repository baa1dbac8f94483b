"""This process's crew, of ranks that stay or of ranks that come and go."""

from __future__ import annotations

from distcore_horovod.crew import Crew
from distcore_horovod.elastic import ElasticCrew
from distcore_horovod.launcher import Launched

_crew: list[Crew] = []


def crew() -> Crew | None:
    """The crew that this process has joined, if any."""
    return _crew[0] if _crew else None


def join(launched: Launched) -> Crew:
    """This process's crew; joined once."""
    if not _crew:
        _crew.append(ElasticCrew(launched) if launched.elastic else Crew(launched))
    return _crew[0]
