"""Two ranks of horovodrun on one machine, a thread each, batch 1024 a rank. Ours against a script
of the same model.

    python bench/stage_horovod.py VARIANT DATA CACHE_DIR PACKED SCRATCH STEPS

Ours is `horovodrun -np 2 distcore train`. The script is horovod.torch as its examples have it:
DistributedOptimizer around fused Adam, parameters broadcast first. Rows a second are of both ranks
together, between batch 50 and the last. Bytes on the wire are what the loopback of a network
namespace of its own has carried, for two lengths of a run; their difference is of the steps alone.
A ring all-reduce of B bytes sends 2(N-1)B over all N ranks.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

import handmade
from handmade import BATCH
from measure import MARK, emit, keep_ahead
from results import Row, at_least, at_most, row
from setting import MORE_PLUGINS, ONE_THREAD, Bench
from stage_train import prepared, training

TITLE = "two ranks of Horovod"
WORLD = 2


# ------------------------------------------------------------------ the script


def rank_by_hand(packed: str, steps: int) -> None:
    """One rank of a horovodrun script."""
    keep_ahead()
    import horovod.torch as hvd
    import torch

    hvd.init()
    torch.set_num_threads(1)
    net = handmade.network()
    feed = handmade.Feed(handmade.load(packed), steps, BATCH, hvd.rank(), hvd.size())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.001, fused=True)
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
    loss_of = torch.nn.functional.binary_cross_entropy_with_logits
    for numbers, codes, target in feed:
        loss = loss_of(net(numbers, codes), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    emit(rate=handmade.rate(feed.stamps, BATCH))
    hvd.shutdown()


# ------------------------------------------------------------------ what is run


def horovodrun(command: list[str]) -> str:
    launch = [sys.executable, "-m", "horovod.runner.launch", "--gloo", "-np", str(WORLD)]
    done = subprocess.run([*launch, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:] + done.stdout[-3000:])
    return done.stdout


def by_hand(packed: str, steps: int) -> None:
    said = horovodrun([sys.executable, __file__, "--rank", packed, str(steps)])
    rates = [
        json.loads(line.partition(MARK)[2])["rate"] for line in said.splitlines() if MARK in line
    ]
    emit(rows_per_second=sum(rates))


def ours(data: str, cache: str, scratch: str, steps: int) -> None:
    folder = Path(scratch)
    stamps, written = folder / f"stamps-{os.getpid()}", folder / f"config-{os.getpid()}.yaml"
    made = training(cache, stamps, {"train_steps": steps}, trainer={"type": "horovod"})
    made["backend"]["type"] = "horovod"
    written.write_text(yaml.safe_dump(made))
    horovodrun([sys.executable, __file__, "--ahead", *command_of(written, data, scratch)])
    rates = [
        handmade.rate(json.loads(Path(f"{stamps}.{rank}").read_text()), BATCH)
        for rank in range(WORLD)
    ]
    emit(rows_per_second=sum(rates))


def command_of(written: Path, data: str, scratch: str) -> list[str]:
    command = [
        str(Path(sys.executable).with_name("distcore")),
        "train",
        "--config",
        str(written),
        "--dataset",
        data,
    ]
    return [*command, "--output_directory", scratch, "--skip_save_progress", "--skip_save_report"]


# ------------------------------------------------------------------ the wire


WIRES: dict[str, dict[str, Any]] = {
    "wire": {},
    "wire_fp16": {"compression": "fp16"},
    "wire_exact": {"exact": True},
    "wire_exact_4": {"exact": True, "world": 4},
}


def wire(
    data: str, cache: str, scratch: str, steps: int, *, world: int = WORLD, **more: Any
) -> None:
    """Bytes that a step sends, over all ranks, over what a ring of 32-bit gradients would send."""
    sent = [carried(data, cache, scratch, count, world, **more) for count in (steps // 4, steps)]
    per_step = (sent[1] - sent[0]) / (steps - steps // 4)
    ring = 2 * (world - 1) * 4 * handmade.parameters(handmade.network())
    emit(bytes_per_step=per_step, ring_bytes=ring, of_ring=per_step / ring)


def carried(
    data: str,
    cache: str,
    scratch: str,
    steps: int,
    world: int,
    compression: str = "none",
    exact: bool = False,
) -> int:
    """Bytes over the loopback of a fresh network namespace, of a whole run there."""
    written = Path(scratch) / f"wire-{os.getpid()}.yaml"
    trainer = {
        "type": "horovod",
        "num_workers": world,
        "use_gpu": False,
        "compression": compression,
    }
    made = training(
        cache,
        Path(scratch) / "stamps-wire",
        {"train_steps": steps, "exact": exact},
        trainer=trainer,
    )
    written.write_text(yaml.safe_dump(made))
    inside = [sys.executable, __file__, "--inside", *command_of(written, data, scratch)]
    alone = (
        ["unshare", "--net"]
        if os.getuid() == 0 and shutil.which("unshare")
        else ["unshare", "--net", "--map-root-user"]
    )
    done = subprocess.run([*alone, *inside], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return int(done.stdout.rpartition(MARK)[2])


def inside(command: list[str]) -> None:
    """Bring the namespace's loopback up, run, and say what it carried."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up = struct.pack("16sH14s", b"lo", 0x1 | 0x40, b"")  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, up)  # SIOCSIFFLAGS
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    (line,) = (
        each
        for each in Path("/proc/net/dev").read_text().splitlines()
        if each.strip().startswith("lo:")
    )
    print(f"{MARK}{line.split()[1]}")


def main() -> None:
    if sys.argv[1] == "--rank":
        rank_by_hand(sys.argv[2], int(sys.argv[3]))
        return
    if sys.argv[1] == "--ahead":  # horovodrun gives each rank a session of its own
        keep_ahead()
        os.execv(sys.argv[2], sys.argv[2:])
    if sys.argv[1] == "--inside":
        inside(sys.argv[2:])
        return
    variant, data, cache, packed, scratch, count = sys.argv[1:7]
    if variant == "by_hand":
        by_hand(packed, int(count))
    elif variant == "distcore_horovod":
        ours(data, cache, scratch, int(count))
    else:
        wire(data, cache, scratch, int(count), **WIRES[variant])


# ------------------------------------------------------------------ what is compared


def measure(bench: Bench) -> list[Row]:
    rows, steps = bench.pick((2_000_000, 600), (200_000, 120))
    data, cache, packed = prepared(bench, rows)
    scratch = bench.data / "horovod"
    scratch.mkdir(exist_ok=True)
    environment: dict[str, Any] = {**ONE_THREAD, **MORE_PLUGINS}

    def script(name: str, count: int) -> list[str]:
        return bench.script("stage_horovod.py", name, data, cache, packed, scratch, count)

    speed = {name: script(name, steps) for name in ("distcore_horovod", "by_hand")}
    found = bench.compare(speed, (3, 1), "rows_per_second", environment)
    carry = bench.compare(
        {name: script(name, 120) for name in WIRES}, (1, 1), "of_ring", environment
    )
    most = at_most(1.05)

    def beside_ring(what: str, name: str) -> Row:
        ratio = carry.median(name, "of_ring")
        return Row(what, "B", carry.median(name, "bytes_per_step"), "what a ring sends: 2(N-1) times the gradients",
            carry.median(name, "ring_bytes"), ratio, ratio, ratio, target=str(most), met=most.met(ratio), rounds=1,
            note="with headers and Horovod's own messages")  # fmt: skip

    return [
        row(found, "steady, both ranks", "distcore_horovod", "by_hand", "rows_per_second", "rows/s", at_least(1 / 1.05),
            peer_is="horovodrun, DistributedOptimizer, fused Adam"),
        row(carry, "bytes on the loopback a step", "wire_fp16", "wire", "bytes_per_step", "B", at_most(0.55),
            peer_is="ours without compression"),
        beside_ring("bytes on the loopback a step", "wire"),
        beside_ring("bytes on the loopback a step, exact", "wire_exact"),
        beside_ring("bytes on the loopback a step, exact, 4 ranks", "wire_exact_4"),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
