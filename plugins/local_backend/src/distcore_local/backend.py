"""This machine as a backend: what it has, gangs through torchelastic's agent, independent tasks over processes."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from distcore.contracts import Gang, Member, Resources
from distcore.errors import TrainingError
from distcore_local.machine import cpus, gpus
from distcore_local.memory import free_bytes

if TYPE_CHECKING:
    from distcore_local.options import BackendOptions

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""What torchelastic's agent listens to while a gang runs, and leaves so; we put the former handlers back."""

log = logging.getLogger("distcore")


class LocalBackend:
    """The backend `local`."""

    name = "local"
    defaults: Mapping[str, str] = {"processor": "local", "loader": "packed", "trainer": "local"}

    def __init__(self, options: BackendOptions) -> None:
        self.options = options

    def resources(self) -> Resources:
        """CPUs this process may use, GPUs (without importing torch), and free memory within a cgroup's limit."""
        return Resources(cpus(), gpus(), 1, free_bytes())

    def run_gang(self, gang: Gang) -> list[Any]:
        """Start the ranks, restart all of them when one dies, and give their results in rank order.

        function must be importable and the arguments must pickle: ranks are fresh processes.
        Raises TrainingError naming rank and exit code or signal, KeyboardInterrupt on ctrl-C."""
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

        threads = gang.threads or max(1, cpus() // gang.ranks)
        with tempfile.TemporaryDirectory(prefix="distcore-gang-") as folder, _quiet_agent(), _handlers_kept():
            launch = LaunchConfig(
                min_nodes=1,
                max_nodes=1,
                nproc_per_node=gang.ranks,
                run_id=uuid.uuid4().hex,
                rdzv_backend="c10d",
                rdzv_endpoint="127.0.0.1:0",
                rdzv_configs={"timeout": 300},
                local_addr="127.0.0.1",
                max_restarts=gang.max_retries,
                monitor_interval=0.1,
                start_method="spawn",
                logs_specs=DefaultLogsSpecs(log_dir=folder),
            )
            try:
                found = elastic_launch(launch, run_member)(gang.function, gang.arguments, threads)
            except ChildFailedError as error:
                raise TrainingError(_explain(error, gang)) from error
            except SignalException as error:
                if error.sigval == signal.SIGINT:
                    raise KeyboardInterrupt from error
                raise SystemExit(128 + error.sigval) from error
        return [found[rank] for rank in range(gang.ranks)]

    def map(self, function: Callable[[Any], T], items: Sequence[Any]) -> Iterator[T]:
        """Run function(item) in processes, one a CPU; results in the order of the items, the first error raised."""
        items = list(items)
        workers = min(cpus(), len(items))
        if workers <= 1:
            yield from map(function, items)
            return
        # A fork would carry over threads' locks; spawn starts clean.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            futures = [pool.submit(function, item) for item in items]
            try:
                for future in futures:
                    yield future.result()
            finally:
                for future in futures:
                    future.cancel()

    def close(self) -> None:
        """Nothing outlives a call."""


def run_member(function: Callable[..., Any], arguments: tuple[Any, ...], threads: int) -> Any:
    """One rank's process: threads set, then the gang's function with who it is."""
    import torch

    torch.set_num_threads(threads)
    environment = os.environ
    environment["OMP_NUM_THREADS"] = str(threads)
    if Path("/sys/class/net/lo").exists():
        # All ranks are on this machine: nothing need listen on its network, nor its name be resolvable.
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    member = Member(int(environment["RANK"]), int(environment["WORLD_SIZE"]), int(environment["LOCAL_RANK"]))
    return function(member, *arguments)


def _explain(error: Any, gang: Gang) -> str:
    """The first rank that failed: exit code or signal, or what it raised."""
    rank, failure = error.get_first_failure()
    if failure.exitcode < 0:
        how = f"was killed by {signal.Signals(-failure.exitcode).name}"
    else:
        how = f"ended with exit code {failure.exitcode}"
    told = _told(failure.error_file_data) or ("" if failure.exitcode < 0 else failure.message)
    often = f" after {gang.max_retries} restarts" if gang.max_retries else ""
    said = f": {told}" if told else ""
    return f"Training stopped{often}: rank {rank} (process {failure.pid}) {how}{said}."


def _told(data: Any) -> str:
    """`ValueError: what` from what a rank left in its error file, without the traceback."""
    message = data.get("message") if isinstance(data, Mapping) else None
    if isinstance(message, Mapping):
        message = message.get("message")
    return str(message).strip().rstrip(".") if message else ""


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Put the signal handlers back that torchelastic replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _quiet_agent() -> Iterator[None]:
    """torchelastic logs every failure with a traceback; the error that is raised says it once."""
    logger = logging.getLogger("torch.distributed.elastic")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
