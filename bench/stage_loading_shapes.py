"""Loading, shape by shape: encoded rows → batches of 1024 in a full shuffle, beside other loaders.

    python bench/stage_loading_shapes.py WHO SHAPE CAP_SECONDS   (SHAPE: a folder, or an endpoint)

The loaders, and what each shuffle is: `peer_loaders.py`. Each goes on after its first batch at the
end, in a new loader (`goes on exactly`: the second batch is the same, by its bytes). torch computes
with one thread, the engines of Lance and Ray with as many as they take. Rows a second are the
median of some epochs, opening not counted. From the bucket (moto's server on this machine, as in
the stage `store`) opening and one epoch are counted together: what comes first is what a bucket is
slow at.

A batch of 1,000 numbers is 4 MB, and StatefulDataLoader gathers it in one pass. What could be
reached there by copying at all is measured beside it: the same rows, in order, to one place.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import stage_store
from conditions import version
from learnt_shapes import SHAPES, home, prepared
from loading_rows import write_lance, write_lance_bucket
from measure import Comparison, emit, run, say
from peer_loaders import GOES_ON_AT, LOADERS, Batches, Stateful
from results import Row, at_least, row
from setting import ONE_THREAD, Bench

TITLE = "cache → batches, shape by shape"
EPOCHS = 9
LEAST = at_least(5)
NARROW, WIDE, RAGGED = "plain", "wide", "sets"
PEERS = {"torchdata": "StatefulDataLoader", "lance": "Lance", "ray": "Ray Data"}
DISTRIBUTIONS = {"torchdata": "torchdata", "lance": "pylance", "ray": "ray"}
ALL = ["distcore", *PEERS]
PREPARE = {"--lance": write_lance, "--lance-bucket": write_lance_bucket}


# ------------------------------------------------------------------ a child


def main() -> None:
    if sys.argv[1] in PREPARE:
        PREPARE[sys.argv[1]](sys.argv[2])
        emit(done=True)
        return
    who, where, cap = sys.argv[1:4]
    if where.startswith("http"):
        from_bucket(LOADERS[who][1], where, float(cap))
    else:
        from_memory(LOADERS[who][0](Path(where)), float(cap))
    sys.stdout.flush()
    os._exit(0)  # threads and clusters of others need seconds to end


def from_memory(loader: Any, cap: float) -> None:
    """Some epochs, the first of which counts as opening; then whether it goes on exactly."""
    one(loader, 0, cap)
    started, rates = time.perf_counter(), []
    for number in range(1, EPOCHS + 1):
        rates.append(one(loader, number, cap))
        if time.perf_counter() - started > cap:
            break
    emit(rows_per_second=statistics.median(rates), goes_on=goes_on(loader))


def from_bucket(kind: Any, endpoint: str, cap: float) -> None:
    """Opening and an epoch, after libraries are imported and connections made. One that takes
    longer than `cap` seconds is left in its middle."""
    next(kind(endpoint).epoch(0))
    started = time.perf_counter()
    loader = kind(endpoint)
    seen = sum(len(batch[3]) for batch in until(loader.epoch(0), started + cap))
    seconds = time.perf_counter() - started
    emit(rows_per_second=seen / seconds, whole=float(seen == loader.rows))


def one(loader: Any, number: int, cap: float) -> float:
    """Rows a second of an epoch."""
    started = time.perf_counter()
    seen = sum(len(batch[3]) for batch in until(loader.epoch(number), started + cap))
    seconds = time.perf_counter() - started
    assert seen == loader.rows or seconds > cap, (seen, loader.rows)
    return seen / seconds


def until(batches: Batches, end: float) -> Batches:
    for batch in batches:
        yield batch
        if time.perf_counter() > end:
            return


def goes_on(loader: Any) -> float:
    """1 if a new loader's first batch after a resumption is the one that would have come."""
    number = EPOCHS + 1
    other = next(loader.resumed(number))
    if isinstance(loader, Stateful):  # its epochs have no numbers: the rest of the same one
        return float(same(next(loader.rest), other))
    batches = loader.epoch(number)
    for _ in range(GOES_ON_AT):
        next(batches)
    return float(same(next(batches), other))


def same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    def tensors(batch: tuple[Any, ...]) -> list[Any]:
        lists = [part for column in batch[2] for part in column]
        return [each.contiguous() for each in (*batch[:2], *lists, batch[3]) if each is not None]

    def raw_bytes(tensor: Any) -> bytes:
        found: bytes = tensor.numpy().tobytes()
        return found

    return list(map(raw_bytes, tensors(one))) == list(map(raw_bytes, tensors(other)))


# ------------------------------------------------------------------ what is compared


def measure(bench: Bench) -> list[Row]:
    """Three shapes in memory, and the narrow one from a bucket."""
    names = bench.pick((NARROW, WIDE, RAGGED), (RAGGED,))
    prepared(bench, names)
    lines = []
    for name in names:
        folder = home(bench, name)
        if not (folder / "rows.lance").exists():
            say(f"  writing {name} for Lance")
            run(bench.script("stage_loading_shapes.py", "--lance", folder))
        floor = ["copy"] if name == WIDE else []
        found = compared(bench, [*ALL, *floor], str(folder), {}, bench.pick(8, 1))
        lines += against(found, SHAPES[name].title)
    return lines + bucket(bench)


def bucket(bench: Bench) -> list[Row]:
    with stage_store.server() as endpoint:
        stage_store.build(endpoint, bench.pick(8, 1))
        environment = {"BUCKET_SHARDS": ",".join(stage_store.objects(endpoint))}
        run(bench.script("stage_loading_shapes.py", "--lance-bucket", endpoint), environment)
        found = compared(bench, ALL, endpoint, environment, bench.pick(30, 2))
    return against(found, "10 numbers, 6 categories, from a bucket")


def compared(
    bench: Bench, names: list[str], where: str, environment: dict[str, str], cap: float
) -> Comparison:
    commands = {who: bench.script("stage_loading_shapes.py", who, where, cap) for who in names}
    return bench.compare(commands, (3, 1), "rows_per_second", {**ONE_THREAD, **environment})


def against(found: Comparison, what: str) -> list[Row]:
    """A row for each peer."""
    lines = []
    for who, name in PEERS.items():
        peer = f"{name} {version(DISTRIBUTIONS[who])}"
        line = row(found, what, "distcore", who, "rows_per_second", "rows/s", LEAST, peer_is=peer)
        if all("goes_on" in each for each in found.runs[who]):
            exact = {x: all(each["goes_on"] for each in found.runs[x]) for x in ("distcore", who)}
            told = {True: "yes", False: "no"}
            line.note = (
                f"goes on exactly: ours {told[exact['distcore']]}, {name} {told[exact[who]]}"
            )
        elif not all(each["whole"] for each in found.runs[who]):
            line.note = f"{name} was left in the middle of its epoch"
        if "copy" in found.runs:
            most = statistics.median(found.ratios("copy", who, "rows_per_second"))
            line.note += f"; copying the same rows in order would be {most:.3g} times {name}"
        lines.append(line)
    return lines


if __name__ == "__main__":
    main()
