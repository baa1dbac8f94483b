"""A stranger on the network: what a run listens on from its start, and what answers at this
machine's own address."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from distcore.workflow import ports

SECONDS = 400
"""How long a run may take to begin, on a machine that is busy with others."""

LAUNCHERS = ("mpirun",)
"""What horovodrun starts, and we do not."""

FOREVER = (
    "trainer: {train_steps: 1000000000, batch_size: 32, early_stop: -1, steps_per_checkpoint: "
    "1000000000}"
)


def config(backend):
    """The small config of `place`, for a run that lasts until it is stopped."""
    return f"""\
input_features:
  - {{name: age, type: number}}
  - {{name: city, type: category}}
output_features:
  - {{name: bought, type: binary}}
{FOREVER}
backend: {backend}
"""


STRANGER = """
import sys
from datetime import timedelta
from torch.distributed import TCPStore
address, port, evil = sys.argv[1:]
store = TCPStore(address, int(port), is_master=False, wait_for_workers=False, timeout=timedelta(seconds=2))
for key in [*store.list_keys(), "/torch.rendezvous.x", "first"]:
    store.set(key, bytes.fromhex(evil))
"""
"""Puts a pickle into a store of torch's."""


class Mark:
    """Unpickled, it leaves a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def own_address():
    """An address of this machine that others reach it at; the test is skipped if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no network")
        address = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this machine has no network")
    return address


class Eavesdropper:
    """Looks at a run under way, again and again. spared: the launcher's own process, which is
    not ours to change."""

    def __init__(self, process, mark, spared=frozenset()):
        self.process, self.mark, self.spared = process, mark, spared
        self.address = own_address()
        self.heard, self.looks, self.attacks = set(), 0, 0

    def look(self):
        """What the run's processes listen on now."""
        run = ports.listening(ports.below(self.process.pid) - self.spared)
        found = [each for each in run if not each.command.startswith(LAUNCHERS)]
        self.heard |= set(found)
        self.looks += 1
        return found

    def until(self, ready, extra_looks=10):
        """Look until ready(what listens now), and some more, while the run goes on; then attack
        every port."""
        end = time.monotonic() + SECONDS
        while not ready(self.look()):
            assert self.process.poll() is None, (
                f"it ended with {self.process.returncode}: {self.said()}"
            )
            assert time.monotonic() < end, f"it never listened on what was waited for: {self.heard}"
            time.sleep(0.02)
        for _ in range(extra_looks):
            for each in self.look():
                self.attack(each)

    def attack(self, port):
        """From another address than the loopback: connect, and put a pickle into what may be a
        store of torch's."""
        self.attacks += 1
        try:
            socket.create_connection((self.address, port.port), 0.5).close()
        except OSError:
            return
        words = [
            sys.executable,
            "-c",
            STRANGER,
            self.address,
            str(port.port),
            pickle.dumps(Mark(self.mark)).hex(),
        ]
        with suppress(subprocess.TimeoutExpired):  # something else listens, and does not answer
            subprocess.run(words, capture_output=True, timeout=30)

    def stop(self, number=signal.SIGINT):
        """Ask the run to end; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.communicate(timeout=SECONDS)
        return self.process.returncode

    def said(self):
        return self.process.communicate(timeout=SECONDS)[1]

    def verdict(self):
        """What was heard beyond the loopback, and whether the attack went through."""
        return sorted(str(each) for each in self.heard if not each.loopback), self.mark.exists()


def end(process):
    """Nothing of a test that fails is left."""
    for each in ports.below(process.pid):
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue
    try:
        process.communicate(timeout=30)
    except (subprocess.TimeoutExpired, ValueError):
        return
