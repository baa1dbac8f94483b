"""What the tests send to the cluster: importable by name from this folder, which the tests put on sys.path."""

import os
import signal
import time
from pathlib import Path

from distcore.errors import UserError
from distcore.testing.loops import train_tiny


def several(member, runs):
    """Some tiny trainings one after another in one gang."""
    return {name: train_tiny(member, run) for name, run in runs.items()}


def who(member):
    """What a rank is told of itself."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS", "MASTER_ADDR", "FOUND_BY")
    return {name: os.environ.get(name) for name in names} | {"folder": os.getcwd(), "member": member}


def report(member, reporter, steps):
    """Steps that are reported, and lines of the log."""
    import logging

    log = logging.getLogger("distcore")
    log.info("rank %d has begun", member.rank)
    log.warning("rank %d is warned", member.rank)
    if member.rank:
        return None
    with reporter.reporting() as progress:
        progress.begin("train", steps, "steps", 10)
        for step in range(steps):
            progress.done, progress.loss = step + 1, 1.0 / (step + 1)
            time.sleep(0.05)
    return progress.done


def refuse(member, folder):
    """Rank 0 finds what no restart mends; the others wait for it."""
    Path(folder, f"{member.rank}-{time.time_ns()}").touch()
    if member.rank == 0:
        raise UserError("this was never right")
    time.sleep(300)


def exit_with(member, code):
    if member.rank == 1:
        os._exit(code)
    time.sleep(300)


def train_and_lose_a_node(member, run, folder):
    """As train_tiny; in the first attempt a rank that is not on the head's node waits at step 8 for its node to go."""
    begun = Path(folder, "begun")
    node = node_of_this()
    if not begun.exists() and node and member.rank == member.world - 1:
        train_until(run, 8, lambda: (begun.write_text(node), time.sleep(600)))
    return train_tiny(member, run)


def node_of_this():
    """Ray's id of the node that this rank runs on: its worker was told."""
    return os.environ["RAY_NODE_ID"]


def train_until(run, step, action):
    """From now on a loader of `run` calls the action before that step."""
    from distcore.testing import loops

    made = loops.TinyLoader.batches

    def batches(self, epoch, start=0):
        self.actions.setdefault(step, action)
        return made(self, epoch, start)

    loops.TinyLoader.batches = batches


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


def rendezvous(gang):
    """A rendezvous of the gang's own, as another collective library brings it."""
    from ray.train.backend import Backend, BackendConfig

    class Ours(Backend):
        def on_start(self, worker_group, backend_config):
            worker_group.execute(_found_by, f"{gang.ranks} ranks")

    class OursConfig(BackendConfig):
        @property
        def backend_cls(self):
            return Ours

    return OursConfig()


def _found_by(how):
    os.environ["FOUND_BY"] = how
