"""Sums of gradients among ranks on a network that is slow, beside what `plan --workers` says of it.

    python bench/stage_network.py WORLD MBIT BYTES REPEATS   (in a network namespace of its own)

Real ranks meet over gloo on a loopback that a token bucket limits (`tc`'s tbf, root), in a network
namespace of their own. All of them share that link, so the model says as many times the bytes that
a rank sends over the link's rate. What is summed: an all-reduce, and the exchange of exact training
with as many parts as its default. Seconds are from the moment when all ranks begin to that when the
last one has the sum, the median of some. A link this slow keeps computing out of it, on two
processors too.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from measure import emit
from results import Row, at_most
from setting import ONE_THREAD, Bench

TITLE = "sums over a slow network"
PARTS = 8
WORLDS = (2, 4, 8)
EXCHANGES = {"all_reduce": "all-reduce", "exact": "exact, 8 parts"}


# ------------------------------------------------------------------ what is run


def limited(world: int, mbit: int, size: int, repeats: int) -> None:
    """Limit this namespace's loopback, and run the ranks."""
    # Packets of an ordinary network; room for all that can be under way, so that none is lost.
    bucket = ["tbf", "rate", f"{mbit}mbit", "burst", "256kb", "limit", "256mb"]
    for words in (
        ["ip", "link", "set", "lo", "mtu", "1500", "up"],
        ["tc", "qdisc", "add", "dev", "lo", "root", *bucket],
    ):
        subprocess.run(words, check=True)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "rank", *map(str, (each, world, size, repeats, folder))],
                env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
            )
            for each in range(world)
        ]
        codes = [each.wait() for each in ranks]
    if any(codes):
        raise SystemExit(f"ranks ended with {codes}")


def rank(index: int, world: int, size: int, repeats: int, folder: str) -> None:
    """One rank; the first says what was found."""
    import torch
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=index, world_size=world
    )
    numbers = torch.ones(size // 4)
    ways: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(numbers),
        "exact": sliced(index, world, size // 4),
    }
    found = {}
    for name, way in ways.items():
        way()
        seconds = []
        for _ in range(repeats):
            dist.barrier()
            started = time.perf_counter()
            way()
            taken = torch.tensor([time.perf_counter() - started], dtype=torch.float64)
            dist.all_reduce(taken, dist.ReduceOp.MAX)
            seconds.append(float(taken))
        found[name] = statistics.median(seconds)
    if index == 0:
        emit(**found)
    dist.destroy_process_group()


def sliced(index: int, world: int, numel: int) -> Callable[[], Any]:
    """The exchange of exact training, as ranks of several machines have it."""
    import torch

    from distcore_core.contracts import Rank
    from distcore_local.data_parallel import all_gather, all_to_all
    from distcore_torch.training.exact.exchange import Shares, SlicedTree

    shares = Shares(Rank(index=index, world=world), PARTS)
    tree = SlicedTree(shares, numel, torch.float32, torch.device("cpu"), all_to_all, all_gather)
    return tree.sum


def main() -> None:
    if sys.argv[1] == "rank":
        index, world, size, repeats = map(int, sys.argv[2:6])
        rank(index, world, size, repeats, sys.argv[6])
    else:
        world, mbit, size, repeats = map(int, sys.argv[1:5])
        limited(world, mbit, size, repeats)


# ------------------------------------------------------------------ what is compared


def available() -> bool:
    """Whether a namespace with a limited loopback can be made here."""
    if not all(map(shutil.which, ("unshare", "ip", "tc"))):
        return False
    words = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root"]
    words += ["tbf", "rate", "1mbit", "burst", "256kb", "limit", "1mb"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def measure(bench: Bench) -> list[Row]:
    """Both exchanges at 2, 4 and 8 ranks."""
    if not available():
        return []
    mbit, size, repeats = bench.pick((200, 8_000_000, 5), (200, 1_000_000, 2))
    commands = {
        str(world): [
            "unshare",
            "--net",
            *bench.script("stage_network.py", world, mbit, size, repeats),
        ]
        for world in bench.pick(WORLDS, WORLDS[-1:])
    }
    found = bench.compare(commands, (3, 1), "all_reduce", ONE_THREAD)
    lines = []
    for world in map(int, commands):
        for name, what in EXCHANGES.items():
            seen = [each[name] for each in found.runs[str(world)]]
            lines.append(line(f"{what}, {world} ranks", seen, expected(name, world, mbit, size)))
            lines[-1].others = found.others(str(world))
    return lines


def expected(name: str, world: int, mbit: int, size: int) -> float:
    """Seconds as the model says."""
    from distcore.cost.scale import ring, sliced_tree

    traffic = ring(world, size) if name == "all_reduce" else sliced_tree(world, PARTS, size)
    return world * traffic.bytes / (mbit * 1e6 / 8)


def line(what: str, seen: list[float], model: float) -> Row:
    ratios, target = [each / model for each in seen], at_most(1.1)
    value = statistics.median(ratios)
    return Row(what, "s", statistics.median(seen), "the model", model, value, min(ratios), max(ratios),
               target=str(target), met=target.met(value), rounds=len(seen))  # fmt: skip


if __name__ == "__main__":
    main()
