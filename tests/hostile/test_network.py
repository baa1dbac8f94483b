"""Nobody gets in: what each kind of run on this machine listens on, and a stranger who puts
pickles where he can."""

import os
import socket
import sys
from contextlib import contextmanager

import pytest
from tests.conftest import some
from tests.hostile.eavesdropper import Eavesdropper, config, end, own_address

from distcore.workflow import ports

DDP = "{type: local, trainer: {type: ddp, num_workers: 2, use_gpu: false}}"
SEARCH = """\
hyperopt:
  goal: maximize
  metric: roc_auc
  output_feature: bought
  parameters:
    trainer.learning_rate: {space: loguniform, lower: 0.0001, upper: 0.1}
  executor: {type: local, num_samples: 2, max_concurrent_trials: 1}
"""


def listens(ranks):
    """Whether as many processes listen: gloo has made its sockets in every rank."""
    return lambda found: len({each.process for each in found}) >= ranks


@contextmanager
def overheard(place, process, **options):
    found = Eavesdropper(process, place.folder / "mark", **options)
    try:
        yield found
    finally:
        end(process)


def run_of(place, kind):
    """(process, whether it is far enough, processes that are a launcher's own)."""
    place.write(place.config, config("local" if kind == "local" else DDP))
    if kind == "local":
        return (
            place.start("train"),
            lambda found: list(place.folder.glob("results/*/description.json")),
            (),
        )
    if kind == "ddp":
        return place.start("train"), listens(2), ()
    if kind == "torchrun":
        launch = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            "-m",
            "distcore.cli.main",
        ]
        process = place.python(*launch, *place.words("train"))
        return process, listens(2), {process.pid}
    with (place.folder / place.config).open("a") as file:
        file.write(SEARCH)
    return place.start("hyperopt", "--config", place.folder / place.config), listens(2), ()


@pytest.mark.parametrize("kind", some(["local", "ddp", "torchrun", "search"], ["ddp", "search"]))
def test_nobody_gets_in(place, sweep, kind):
    process, ready, spared = run_of(place, kind)
    looks = sweep.times(5, 25)
    with overheard(place, process, spared=set(spared)) as stranger:
        stranger.until(ready, extra_looks=looks)
        stranger.stop()
        beyond, marked = stranger.verdict()
    assert beyond == []
    assert not marked
    what = {
        "local": "the trainer local",
        "search": "a search whose trials are ddp",
        "torchrun": "the ranks of torchrun",
    }
    sweep.tried(
        f"a look at everything that {what.get(kind, kind)} listens on, and a pickle to each port "
        "from another address",
        stranger.looks + stranger.attacks,
        f"{len(stranger.heard)} sockets, all on the loopback; nothing answered, nothing ran",
    )


def test_the_stranger_gets_in_if_the_door_is_open(tmp_path):
    """The test of the test: torch's own store, and somebody who unpickles what is in it."""
    import pickle

    from torch.distributed import TCPStore

    store = TCPStore(own_address(), 0, is_master=True, wait_for_workers=False)
    stranger = Eavesdropper.__new__(Eavesdropper)
    stranger.mark, stranger.address, stranger.attacks = tmp_path / "mark", own_address(), 0
    (port,) = [each for each in ports.listening([os.getpid()]) if each.port == store.port]
    assert not port.loopback
    stranger.attack(port)
    pickle.loads(store.get("first"))  # noqa: S301 - to see that it would
    assert stranger.mark.exists()


@pytest.mark.parametrize(
    ("address", "near"), [("127.0.0.1", True), ("0.0.0.0", False), ("::1", True), ("::", False)]
)
def test_what_listens_is_seen_with_its_address(address, near):
    with socket.create_server(
        (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET
    ) as server:
        (found,) = [
            each for each in ports.listening([os.getpid()]) if each.port == server.getsockname()[1]
        ]
        assert (found.address, found.loopback) == (address, near)
        assert os.getpid() in ports.below(os.getppid())


def test_the_doctor_says_what_listens(place):
    """Of a process whose command line names distcore, and not of others."""
    program = (
        "import socket, sys; s = socket.create_server(('0.0.0.0', 0)); print(s.getsockname()[1], "
        "flush=True); input()"
    )
    import subprocess

    words = [sys.executable, "-c", program, "distcore"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        port = process.stdout.readline().strip()
        from distcore.workflow.doctor import _listening

        (check,) = _listening()
        process.communicate("\n")
    assert f"0.0.0.0:{port} (process {process.pid}, " in check.found
    assert "reached from the network" in check.found
