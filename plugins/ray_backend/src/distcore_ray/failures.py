"""What became of a worker group, in words: which rank, where, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distcore_ray.address import probe
from distcore_ray.coordinator import Failure, Seat

PROBE_SECONDS = 2.0


def first_cause(
    group: str,
    seats: Sequence[Seat],
    failures: Sequence[Failure],
    nodes: Sequence[Mapping[str, Any]],
) -> str:
    """Why the group ended: a rank that died, else one whose node is gone, else what a rank raised.

    A rank that loses the connection to another one raises, too; that is not the cause. nodes:
    `ray.nodes()`."""
    ours = [each for each in failures if each.seat.group == group]
    died = [each for each in ours if each.died]
    if died:
        return told(died[0].seat, died[0].how)
    seated = [each for each in seats if each.group == group]
    gone = _gone({each.node for each in seated}, nodes)
    lost = [each for each in seated if each.node in gone]
    if lost:
        ranks = ", ".join(str(each.rank) for each in lost)
        return (
            f"rank {ranks} went down with its node {lost[0].host} ({lost[0].node[:12]}), which no "
            "longer answers"
        )
    if ours:
        blamed = _blamed(ours)
        return told(blamed.seat, blamed.how)
    silent = [each for each in seated if each.rank not in {one.seat.rank for one in ours}]
    where = ", ".join(f"rank {each.rank} on node {each.host}" for each in silent[:3])
    return f"Ray ended a worker without telling why ({where or 'before a rank began'})"


def cause_of(group: str, failures: Sequence[Failure]) -> OSError | None:
    """What the system said, if a disk or a limit is to blame for a group's end."""
    ours = [each for each in failures if each.seat.group == group]
    return None if any(each.died for each in ours) or not ours else _blamed(ours).cause


def _blamed(raised: Sequence[Failure]) -> Failure:
    """Of ranks that raised, the one that the system refused something, else the first: the others
    may have lost it."""
    return next((each for each in raised if each.cause is not None), raised[0])


def last_line(error: BaseException | None) -> str:
    """What Ray says in the end, below its tracebacks, without a full stop."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__).rstrip(".")


def told(seat: Seat, how: str) -> str:
    """`rank 1 on node 10.0.0.3 (process 123) was killed by SIGKILL`."""
    return f"rank {seat.rank} on node {seat.host} (process {seat.pid}) {how}"


def _gone(used: set[str], nodes: Sequence[Mapping[str, Any]]) -> set[str]:
    """Those of the nodes that are dead, or whose manager does not answer (Ray takes a while to
    notice)."""
    gone = set(used)
    for node in nodes:
        if node["NodeID"] not in used or not node["Alive"]:
            continue
        if not probe(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}", PROBE_SECONDS):
            gone.discard(node["NodeID"])
    return gone
