"""What the tests send to the cluster: importable by name from this folder, which the tests put
on sys.path."""

import os
import signal
import time
from contextlib import nullcontext
from pathlib import Path

from distcore_core.errors import CheckpointError, DataError, UserError
from distcore_core.progress import Round
from distcore_data.os_errors import explained
from distcore_testing.jobs import DiesOnce
from distcore_testing.loops import train_tiny


def several(rank, runs):
    """Some tiny trainings one after another in one worker group."""
    return {name: train_tiny(rank, run) for name, run in runs.items()}


def who(rank):
    """What a rank is told of itself."""
    names = (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "OMP_NUM_THREADS",
        "MASTER_ADDR",
        "FOUND_BY",
    )
    return {name: os.environ.get(name) for name in names} | {"folder": os.getcwd(), "rank": rank}


def a_round(number):
    """An evaluation round as the loop tells it."""
    place = {
        "split": "training",
        "feature": "y",
        "metric": "loss",
        "patience_left": None,
        "seconds": 1.0,
    }
    best = {"value": 0.5, "best": 0.5, "best_evaluation": number}
    return Round(
        evaluation=number, epoch=number, epochs=2.0, step=20 * number, metrics={}, **place, **best
    )


def report(rank, reporter, steps):
    """Steps that are reported, and lines of the log."""
    import logging

    log = logging.getLogger("distcore")
    log.info("rank %d has begun", rank.index)
    log.warning("rank %d is warned", rank.index)
    if rank.index:
        return None
    with reporter.reporting() as progress:
        progress.begin("train", steps, "steps", 10)
        for step in range(steps):
            progress.done, progress.loss = step + 1, 1.0 / (step + 1)
            time.sleep(0.05)
            if progress.done % 20 == 0:
                progress.tell(a_round(progress.done // 20))
    return progress.done


def refuse(rank, folder):
    """Rank 0 finds what no restart mends; the others wait for it."""
    Path(folder, f"{rank.index}-{time.time_ns()}").touch()
    if rank.index == 0:
        raise UserError("this was never right")
    time.sleep(300)


class OddError(DataError):
    """A plugin's, made of two words: a pickle gives it one."""

    def __init__(self, column, row):
        super().__init__(f"{column} is odd in row {row}.")


class OwnError(UserError):
    """A plugin's."""


def odd(rank):
    raise OddError("age", 3)


def own(rank):
    raise OwnError("age is odd in row 3.")


def meet_a_full_disk(rank, told):
    """Rank 0 does; told: whether it says so by an error of ours."""
    if rank.index == 0:
        words = explained("/dev", "the checkpoint", CheckpointError) if told else nullcontext()
        with words, open("/dev/full", "wb", buffering=0) as disk:
            disk.write(b"weights")
    time.sleep(300)


def exit_with(rank, code):
    if rank.index == 1:
        os._exit(code)
    time.sleep(300)


class TakesItsNode(DiesOnce):
    """A task's function that kills the manager of its node, and so the node, if `DiesOnce` kills
    its process."""

    def die(self):
        os.kill(int(os.environ["RAY_RAYLET_PID"]), signal.SIGKILL)
        time.sleep(600)


def die_once(item):
    """A task: the first to ask for item 3 is killed."""
    number, folder = item
    marker = Path(folder, f"ran-{number}")
    first = not marker.exists()
    marker.touch()
    if number == 3 and first:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * 10


def note(item):
    """A task that leaves a file."""
    number, folder = item
    Path(folder, str(number)).touch()
    return number


def rendezvous(group):
    """A rendezvous of the worker group's own, as another collective library brings it."""
    from ray.train.backend import Backend, BackendConfig

    class Ours(Backend):
        def on_start(self, worker_group, backend_config):
            worker_group.execute(_found_by, f"{group.ranks} ranks")

    class OursConfig(BackendConfig):
        @property
        def backend_cls(self):
            return Ours

    return OursConfig()


def _found_by(how):
    os.environ["FOUND_BY"] = how
