"""A Ray Train worker's part in a group: it starts a process, passes on its words, and tells how
it ended."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import ray

from distcore_core.contracts import Rank
from distcore_core.progress import Round
from distcore_data.temporaries import temporary_folder
from distcore_data.threads import processors
from distcore_ray.coordinator import Failure, Seat
from distcore_ray.rank import Orders
from distcore_torch.signals import how_it_ended
from distcore_torch.training.heartbeat import FILE, Listener
from distcore_torch.training.stalls import Watch, Watched

TELL_SECONDS = 0.5
"""How often a worker asks the coordinator whether to go on, and hands over what its rank said."""

LATER_SECONDS = 1.0
"""How long a rank that raised waits before it says so: mostly another one died, and it lost the
connection to it."""


class RankFailed(Exception):
    """What Ray Train hears of a rank that did not end well."""


def run(config: dict[str, Any]) -> None:
    """The training function of Ray Train. config: `coordinator`, `place`, `payload`, `threads`,
    `level`."""
    rank, environment = _who(config["threads"])
    with temporary_folder("heartbeat") as folder:
        listener = Listener(folder / "rank")
        _run(config, rank, {**environment, FILE: str(listener.path)}, listener)


def _run(
    config: dict[str, Any], rank: Rank, environment: dict[str, str], listener: Listener
) -> None:
    coordinator = config["coordinator"]
    process, connection = _started(environment)
    watch = Watch(
        [Watched(rank.index, process.pid, listener)], config["hang_seconds"], world=rank.world
    )
    seat = Seat(
        _group(),
        rank.index,
        rank.world,
        ray.get_runtime_context().get_node_id(),
        ray.util.get_node_ip_address(),
        process.pid,
    )
    try:
        if ray.get(coordinator.sit.remote(seat)):
            with suppress(OSError):  # it has died already, which is found out below
                payload = config["payload"].content
                connection.send(Orders(config["place"], rank, payload, config["level"]))
            _watch(coordinator, seat, process, connection, watch)
    finally:
        connection.close()
        process.kill()
        process.wait()
        watch.close()


def _group() -> str:
    """The attempt: Ray Train reserves its places anew for each."""
    reserved = ray.util.get_current_placement_group()
    assert reserved is not None
    return str(reserved.id.hex())


def _who(threads: int) -> tuple[Rank, dict[str, str]]:
    """Which rank this is, and what torch and others read of it in the environment."""
    from ray.train import get_context

    context = get_context()
    rank = Rank(
        index=context.get_world_rank(),
        world=context.get_world_size(),
        local_rank=context.get_local_rank(),
    )
    local_world = context.get_local_world_size()
    node = ray.get_runtime_context().get_node_id()
    if not threads:
        there = next(
            (each["Resources"].get("CPU", 1) for each in ray.nodes() if each["NodeID"] == node), 1
        )
        threads = max(1, int(min(there, processors())) // local_world)
    return rank, {
        **os.environ,
        "RAY_NODE_ID": node,
        "RANK": str(rank.index),
        "WORLD_SIZE": str(rank.world),
        "LOCAL_RANK": str(rank.local_rank),
        "LOCAL_WORLD_SIZE": str(local_world),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
    }


def _started(environment: dict[str, str]) -> tuple[subprocess.Popen[bytes], Connection]:
    ours, theirs = socket.socketpair()
    with theirs:
        # -P: the folder that Ray runs in is no place to import from.
        words = [sys.executable, "-P", "-m", "distcore_ray.rank", str(theirs.fileno())]
        process = subprocess.Popen(words, env=environment, pass_fds=[theirs.fileno()])
    return process, Connection(ours.detach())


def _watch(
    coordinator: Any,
    seat: Seat,
    process: subprocess.Popen[bytes],
    connection: Connection,
    watch: Watch,
) -> None:
    """Pass on what the rank says until it ends. Raises RankFailed if that was not well."""
    numbers, logs, ending, told = None, list[tuple[Any, ...]](), None, 0.0
    rounds: list[Round] = []
    watch.tell = lambda text: logs.append((logging.WARNING, text))
    while ending is None:
        try:
            if connection.poll(TELL_SECONDS):
                what, *rest = connection.recv()
                if what == "numbers":
                    numbers = rest[0]
                elif what == "round":
                    rounds.append(rest[0])
                elif what == "log":
                    logs.append(tuple(rest))
                else:
                    ending = (what, *rest)
            # What a rank forked has its end of the socket, and may outlive it.
            elif process.poll() is not None and not connection.poll():
                ending = ("died",)
        except (EOFError, OSError):
            ending = ("died",)
        hung = watch.look()
        if hung is not None and ending is None:
            ending = ("hung", hung[1])
        now = time.monotonic()
        if ending is not None or now - told >= TELL_SECONDS:
            stop, leave = ray.get(coordinator.tell.remote(seat, numbers, logs, rounds))
            numbers, told = None, now
            logs.clear()
            rounds.clear()
            if leave:
                return
            if stop and ending is None:
                with suppress(OSError):
                    connection.send("stop")
    _ended(coordinator, seat, process, ending)


def _ended(
    coordinator: Any, seat: Seat, process: subprocess.Popen[bytes], ending: tuple[Any, ...]
) -> None:
    what, *rest = ending
    if what in ("result", "stopped"):
        ray.get(coordinator.done.remote(seat, rest[0] if rest else None, what == "stopped"))
        return
    if what == "hung":
        failure = Failure(seat, f"was ended: {rest[0]}", died=True)
    elif what == "died":
        failure = Failure(seat, how_it_ended(process.wait()), died=True)
    else:
        text, error, cause = rest
        failure = Failure(seat, f"raised {text}", died=False, error=error, cause=cause)
        if error is None:
            time.sleep(LATER_SECONDS)
    ray.get(coordinator.fail.remote(failure))
    raise RankFailed(f"rank {seat.rank} {failure.how}")
