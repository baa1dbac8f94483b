"""A script for a launcher's processes: what the backend and the processor do for the leader, said
as one line of JSON.

process_group_jobs.py <what> <folder>
"""

import json
import os
import signal
import sys
from itertools import pairwise
from pathlib import Path

from distcore.workflow.backend_choice import make_backend
from distcore_core.contracts import PROCESSOR, ShardPlan, WorkerGroup
from distcore_core.errors import TrainingError
from distcore_core.registry.manager import Plugins
from distcore_testing import jobs, rank_jobs

EDGES = (0, 5, 5, 6, 40, 41, 70, 90, 100)
PLANS = (
    ShardPlan(index=0, start=0, stop=33),
    ShardPlan(index=1, start=33, stop=66),
    ShardPlan(index=2, start=66, stop=100),
)


def who(item):
    """A task: what it was given, and which process did it."""
    return item, os.getpid()


def tasks(backend, folder):
    done = [list(backend.map(who, list(range(19)))) for _ in range(2)]
    try:
        list(backend.map(jobs.square, [1, 2, "a", 4, "b"]))
    except TypeError as error:
        said = str(error)
    return {
        "items": [[item for item, _ in each] for each in done],
        "processes": len({process for each in done for _, process in each}),
        "error": said,
        "none": list(backend.map(who, [])),
        "again": list(backend.map(jobs.square, [3])),
        "workers": backend.resources().workers,
        "nodes": backend.resources().nodes,
    }


def deadly_task(item):
    """The victim's first attempt ends its process without a word."""
    number, folder = item
    victim, mark = int(Path(folder, "victim").read_text()), Path(folder, "died")
    if number == victim and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def deadly(backend, folder):
    items = list(backend.map(deadly_task, [(number, folder) for number in range(10)]))
    return {"items": items, "workers": backend.resources().workers}


def die_once(rank, folder):
    """SIGKILL the last rank at the first attempt; every rank leaves a line for each attempt in
    `rank-<n>`, and says who it is."""
    with open(Path(folder, f"rank-{rank.index}"), "a") as file:
        file.write("started\n")
    if rank.index == rank.world - 1 and len(rank_jobs.attempts(folder, rank.index)) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return rank.index, rank.world, rank.local_rank


def group(backend, folder):
    made = WorkerGroup(function=die_once, arguments=(folder,), ranks=backend.resources().workers)
    for rank in range(made.ranks):  # as if it had died before, so that nobody dies
        Path(folder, f"rank-{rank}").write_text("started\n")
    return {"members": backend.run_group(made), "again": backend.run_group(made)}


def die_in_horovod(rank, folder):
    """At the first attempt rank 1 is killed while rank 0 waits for it in a sum; at the second
    the sum is given."""
    import torch

    from distcore_horovod.options import TrainerOptions
    from distcore_horovod.strategy import HorovodStrategy

    strategy = HorovodStrategy(TrainerOptions(use_gpu=False))
    strategy.setup(rank)
    die_once(rank, folder)
    values = torch.full((3,), 1.0 + rank.index)
    strategy.all_reduce(values)
    strategy.teardown()
    return values.tolist()


def raising(backend, folder):
    try:
        backend.run_group(
            WorkerGroup(function=jobs.fail_in_rank_one, ranks=backend.resources().workers)
        )
    except TrainingError as error:
        return {"error": str(error)}


def reduced(rank, options):
    """This rank's gradients of two parameters (its share of a mean over all rows), and what
    became of them."""
    import torch

    from distcore_horovod.options import TrainerOptions
    from distcore_horovod.strategy import HorovodStrategy

    strategy = HorovodStrategy(TrainerOptions(use_gpu=False, **options))
    strategy.setup(rank)
    module = torch.nn.Linear(5, 3)
    strategy.prepare(module)
    random = torch.Generator().manual_seed(rank.index)
    for each in module.parameters():
        each.grad = torch.randn(each.shape, generator=random) / rank.world
    mine = [each.grad.flatten().tolist() for each in module.parameters()]
    strategy.reduce()
    found = [each.grad.flatten().tolist() for each in module.parameters()]
    strategy.teardown()
    return {"mine": mine, "found": found}


def formulas(backend, folder):
    named = {
        "average": {},
        "sum": {"op": "sum"},
        "fp16": {"compression": "fp16"},
        "predivided": {"gradient_predivide_factor": 4.0},
        "predivided fp16": {"gradient_predivide_factor": 4.0, "compression": "fp16"},
    }
    if backend.launched.by == "mpirun":
        named["adasum"] = {"op": "adasum"}
    ranks = backend.resources().workers
    return {
        name: backend.run_group(WorkerGroup(function=reduced, arguments=(options,), ranks=ranks))
        for name, options in named.items()
    }


def rows(backend, folder):
    found = {}
    for name, edges in {"many": EDGES, "one": (0, 100), "two": (0, 50, 100)}.items():
        source = jobs.CountedSource(Path(folder, name), edges)
        Path(folder, name).mkdir()
        processor = Plugins().make(PROCESSOR, "horovod")
        count = processor.scan(source)
        merged, blocks = processor.fold(jobs.total_of, jobs.add)
        shards = processor.write_shards(PLANS, jobs.rows_of)
        processor.close()
        reads = [path.read_text().split() for path in Path(folder, name).glob("read-*")]
        found[name] = {
            "count": count == len(edges) - 1,
            "merged": merged,
            "blocks": blocks == [stop - start for start, stop in pairwise(edges)],
            "rows": [[index, each] for index, each, _ in shards],
            "names": all(
                names == [jobs.name_of(int(row)) for row in each] for _, each, names in shards
            ),
            "once": all(each == ["read"] for each in reads),
        }
    processor = Plugins().make(PROCESSOR, "horovod")
    processor.scan(jobs.CountedSource(Path(folder), EDGES, bad=[6]))
    try:
        processor.fold(jobs.total_of, jobs.add)
    except ValueError as error:
        found["error"] = str(error)
    processor.close()
    return found


if __name__ == "__main__":
    backend = make_backend(Plugins(), "horovod", {})
    print(
        "FOUND"
        + json.dumps(
            {"rank": backend.process_group.rank, **globals()[sys.argv[1]](backend, sys.argv[2])}
        ),
        flush=True,
    )
