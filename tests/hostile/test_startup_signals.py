"""ctrl-C at random times of the start, while modules load: never a hang, an abort or a
traceback, always one line."""

import os
import re
import signal
import time

import pytest
from tests.conftest import some

DATA = ("--dataset", "data.csv")
COMMANDS = {
    "preprocess": (("preprocess", "--config", "config.yaml", *DATA), 60),
    "plan": (("plan", "--config", "config.yaml", *DATA), 40),
    "plugins": (("plugins",), 60),
    "train": (("train", "--config", "config.yaml", *DATA), 80),
    "train with ddp": (("train", "--config", "ddp.yaml", *DATA), 60),
}
"""{name: (words, how often under `make hostile`)}."""


def begun(pid):
    """Whether the process has come to our first line, which holds signals back; later it has
    handlers of its own. One that is over already has.

    What comes before is Python's own start."""
    with open(f"/proc/{pid}/status") as file:
        found = dict(each.split(":", 1) for each in file)
    held = int(found["SigBlk"], 16) | int(found["SigCgt"], 16)
    return bool(held & 1 << (signal.SIGTERM - 1)) or found["State"].split()[0] in "ZX"


def until_begun(pid):
    """Wait until the process has."""
    while not begun(pid):
        time.sleep(0.0005)


def begin(place, words):
    """The program, once its first line has run."""
    process = place.python("-m", "distcore", *words)
    until_begun(process.pid)
    return process


@pytest.mark.parametrize("command", some(COMMANDS, ["preprocess", "plugins", "train"]))
def test_ctrl_c_while_modules_load(sweep, place, command):
    config = (place.folder / "config.yaml").read_text()
    ranks = "backend: {type: local, trainer: {type: data_parallel, num_workers: 2}}"
    place.write("ddp.yaml", config.replace("backend: local", ranks))
    words, often = COMMANDS[command]
    since = time.monotonic()
    whole = place.finish(begin(place, words))
    assert whole.code == 0, whole.err
    seconds = time.monotonic() - since
    before = place.listing().keys()
    ends = {130: 0, 0: 0}
    count = sweep.times(3, often)
    for _ in range(count):
        process = begin(place, words)
        time.sleep(sweep.random.random() * seconds * 0.9)
        if sweep.random.random() < 0.5:
            process.send_signal(signal.SIGINT)
        else:
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        done = place.finish(process, 120)
        assert done.code in ends, done
        assert "Traceback" not in done.err, done.err
        assert "Fatal" not in done.err, done.err
        if done.code:
            assert re.findall(r"^distcore: .*", done.err, re.MULTILINE)[-1].startswith(
                "distcore: stopped by ctrl-C."
            )
        ends[done.code] += 1
        litter = [
            each
            for each in place.listing().keys() - before
            if re.search(r"tmp|building|removing", each)
        ]
        assert not litter, litter
    sweep.tried(
        f"ctrl-C at a random time of the start of `distcore {command}`",
        count,
        f"{ends[130]} ended with exit code 130 and one line, {ends[0]} were done before; no hang, "
        "abort or traceback",
    )
