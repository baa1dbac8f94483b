"""Runs of two ranks under each launcher, which tests stop by SIGSTOP once they train."""

import os
import random
import re
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.hostile.eavesdropper import end

from distcore.workflow import ports
from distcore_testing.brake import Brake

SECONDS = 400
STEPS = 900
EARLY = 350
"""Steps after which a run has saved a checkpoint; it is slow from there on, until a test lets go."""

CONFIG = """\
input_features:
  - {{name: age, type: number}}
  - {{name: city, type: category}}
output_features:
  - {{name: bought, type: binary}}
trainer: {{train_steps: {steps}, batch_size: 32, early_stop: -1, steps_per_checkpoint: 300{more}}}
backend: {backend}
"""
RANKS = "num_workers: 2, use_gpu: false"
BACKENDS = {
    "ddp": f"{{type: local, trainer: {{type: data_parallel, {RANKS}}}}}",
    "torchrun": f"{{type: local, trainer: {{type: data_parallel, {RANKS}}}}}",
    "horovodrun": "horovod",
    "ray": f"{{type: ray, num_cpus: 2, trainer: {{type: data_parallel, {RANKS}}}}}",
}
MODULE = ("-m", "distcore.cli.main")
LAUNCHERS = {
    "torchrun": ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *MODULE),
    "horovodrun": ("-m", "horovod.runner.launch", "--gloo", "-np", "2", sys.executable, *MODULE),
}
VARIABLES = {"torchrun": "RANK", "horovodrun": "HOROVOD_RANK", "ray": "RANK"}
"""Which variable names a rank that a launcher started."""


class Run:
    """A run in a process of its own, which is slow once there is a checkpoint, until its brake is
    released. said: its lines on standard error so far."""

    def __init__(self, place, kind, more="", steps=STEPS, retries=None, told_seconds=None):
        backend = BACKENDS[kind]
        if retries is not None:
            backend = backend.replace("use_gpu", f"max_retries: {retries}, use_gpu")
        place.write(place.config, CONFIG.format(steps=steps, more=more, backend=backend))
        self.brake = Brake(place.folder.with_name(f"{place.folder.name}-brake"))
        self.brake.apply(after=EARLY)
        environment = self.brake.environment
        if told_seconds is not None:
            environment["DISTCORE_TOLD_SECONDS"] = str(told_seconds)
        if kind == "ray":
            environment["TMPDIR"] = "/tmp"  # its sockets' paths must be short
        launcher = [*LAUNCHERS.get(kind, ("-m", "distcore"))]
        if retries and kind == "torchrun":
            launcher[2:2] = ["--max-restarts", str(retries)]
        self.process = place.python(*launcher, *place.words("train"), **environment)
        self.place, self.kind, self.said = place, kind, []
        self._threads = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for each in self._threads:
            each.start()

    def _read(self, stream):
        self.said += iter(stream.readline, "")

    @property
    def text(self):
        return "".join(self.said)

    def until(self, ready, what):
        """Wait until ready() gives something; give that."""
        limit = time.monotonic() + SECONDS
        while not (found := ready()):
            assert self.process.poll() is None, f"it ended before {what}: {self.text}"
            assert time.monotonic() < limit, f"{what} never came: {self.text}"
            time.sleep(0.05)
        return found

    def line(self, pattern):
        """Wait until it says this."""
        return self.until(lambda: re.search(pattern, self.text), pattern)

    def ranks(self):
        """{rank: process} of those that are there."""
        found = {}
        for process in ports.below(self.process.pid):
            rank = self._rank(process)
            if rank is not None:
                found[rank] = process
        return found

    def _rank(self, process):
        with suppress(OSError):
            if self.kind == "ddp":
                mapped = re.search(
                    r"/distcore-group-\w+/rank-(\d)", Path(f"/proc/{process}/maps").read_text()
                )
                return int(mapped[1]) if mapped and process != self.process.pid else None
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if (b"distcore_ray.rank" if self.kind == "ray" else b"distcore.cli.main") in words[2:4]:
                variables = Path(f"/proc/{process}/environ").read_text().split("\0")
                named = dict(each.partition("=")[::2] for each in variables)
                return int(named[VARIABLES[self.kind]])
        return None

    def checkpoints(self):
        return {
            str(each) for each in self.place.results.glob("checkpoints/step-*") if not each.suffix
        }

    def training(self):
        """Both ranks, once a checkpoint was saved."""
        self.until(self.checkpoints, "a checkpoint")
        return self.until(lambda: found if len(found := self.ranks()) == 2 else None, "two ranks")

    def stop_one(self, dice: random.Random):
        """SIGSTOP to a rank that trains: (rank, process)."""
        chosen = dice.choice(sorted(self.training().items()))
        os.kill(chosen[1], signal.SIGSTOP)
        return chosen

    def finish(self):
        """The exit code."""
        self.process.wait(timeout=SECONDS)
        for each in self._threads:
            each.join()
        return self.process.returncode

    def close(self):
        """Nothing is left of it."""
        end(self.process)


def weights(place):
    """The bytes that training ends with."""
    return (place.results / "model" / "weights.safetensors").read_bytes()
