"""Nobody gets in, with Horovod and on a Ray cluster that a run starts on this machine."""

import sys
from pathlib import Path

import pytest
from tests.hostile.eavesdropper import config
from tests.hostile.test_network import listens, overheard

from distcore.workflow import ports

pytestmark = pytest.mark.cluster

RAY = "{type: ray, num_cpus: 2, trainer: {type: ddp, num_workers: 2, use_gpu: false}}"
GANG = "{type: local, trainer: {type: horovod, num_workers: 2, use_gpu: false}}"
MODIN = "{type: local, processor: {type: modin, parallelism: 2}}"


def ranks_of_ray(found):
    return len({each.process for each in found if "distcore_ray.rank" in each.command}) == 2


def run_of(place, kind):
    if "horovodrun" in kind:
        place.write(place.config, config("horovod"))
        launcher = Path(sys.executable).parent / "horovodrun"
        words = ["-np", "2", sys.executable, "-m", "distcore.cli.main", *place.words("train")]
        process = place.python(str(launcher), *words)
        # The launcher's own server listens everywhere: it is Horovod's, and is there before we are.
        return process, listens(1), {process.pid}  # rank 0's board
    if "modin" in kind:
        place.write(place.config, config(MODIN))
        return (
            place.start("train", TMPDIR="/tmp"),
            listens(4),
            set(),
        )  # the store of addresses, the node, a worker, we
    place.write(place.config, config(RAY if "Ray" in kind else GANG))
    if "Ray" in kind:
        return (
            place.start("train", TMPDIR="/tmp"),
            ranks_of_ray,
            set(),
        )  # its sockets' paths must be short
    process = place.start("train")
    # Horovod's sockets listen only while ranks meet, so there may be nothing to see: both ranks
    # have begun.
    return process, lambda found: len(ports.below(process.pid)) >= 4, set()


@pytest.mark.parametrize(
    "kind",
    [
        "the ranks of horovodrun",
        "a Horovod worker group",
        "a Ray cluster of this machine",
        "the Ray that modin starts for its preprocessing",
    ],
)
def test_nobody_gets_in(place, sweep, kind):
    process, ready, spared = run_of(place, kind)
    with overheard(place, process, spared=spared) as stranger:
        stranger.until(ready, extra_looks=3)
        started = ports.below(process.pid)
        beyond, marked = stranger.verdict()
    assert beyond == []
    assert not marked
    assert len(started) >= 3
    sweep.tried(
        f"a look at everything that {kind} listens on, and a pickle to each port from another "
        "address",
        stranger.looks + stranger.attacks,
        f"{len(stranger.heard)} sockets, all on the loopback; nothing answered, nothing ran",
    )
