"""Trials that are asked to stop at a bad moment: importable by name, for a process that runs
them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def until(path):
    while not Path(path).exists():
        time.sleep(0.01)


class _Slow:
    """Its end takes a while; what is raised in a destructor is printed and lost."""

    def __init__(self, folder):
        self.folder = folder

    def __del__(self):
        (self.folder / "begun").touch()
        until(self.folder / "go on")


def in_a_destructor(work, name, raw):
    """Stands in a destructor, and then in another one, and so on."""
    while True:
        each = _Slow(Path(raw["folder"]))
        del each


def at_its_end(work, name, raw):
    """Is asked to stop when nobody looks any more, and returns."""
    signal.signal(signal.SIGINT, lambda *_: None)
    Path(raw["folder"], "begun").touch()
    until(Path(raw["folder"], "go on"))


def leaves_files(work, name, raw):
    """Has made a temporary folder and stands still."""
    import tempfile

    Path(raw["folder"], "temporary").write_text(tempfile.mkdtemp())
    Path(raw["folder"], "begun").touch()
    time.sleep(600)


def starts_another(work, name, raw):
    """Has started a process that watches nobody, and stands still."""
    subprocess.Popen(["sleep", "600"])
    Path(raw["folder"], "process").write_text(str(os.getpid()))
    Path(raw["folder"], "process").rename(Path(raw["folder"], "begun"))
    time.sleep(600)


def refused(work, name, raw):
    """Its record cannot be written. work: the errno."""
    raise OSError(work, os.strerror(work))


def leaves(work, name, raw):
    """Ends its process, as a library may that thinks it is a program."""
    Path(raw["folder"], "begun").touch()
    sys.exit(raw["with"])


ROUNDS_WITHOUT = 100


def no_value(work, name, raw):
    """Its loss is NaN in every round."""
    from distcore_search.records import ROUNDS
    from distcore_search.rounds import add_round

    for number in range(1, ROUNDS_WITHOUT + 1):
        metrics = {"validation": {"y": {"loss": None}}}
        found = {"step": number, "epoch": number, "seconds": 0.1 * number, "metrics": metrics}
        add_round(work.folder(name) / ROUNDS, found)
        time.sleep(0.05)


def environment(work, name, raw):
    """Prints the names of the process's variables."""
    print(*os.environ, flush=True)
