"""A Ray Train V2 script of the same model, as Ray's documentation has them: two workers, DDP, fused
Adam.

    python bench/peer_ray.py PACKED STEPS SCRATCH

Its cluster is the one that RAY_ADDRESS names, else one of this machine, without a dashboard. Each
rank writes the times at which it took its batches to SCRATCH/by_hand-<pid>.<rank>, as the loader
`stamped` does; rank 0 the last weights.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import handmade
from handmade import BATCH
from measure import keep_ahead

WORLD = 2


def worker(settings: dict[str, Any]) -> None:
    """The training function: one rank."""
    import torch
    from ray import train
    from ray.train.torch import prepare_model

    context = train.get_context()
    rank = context.get_world_rank()
    feed = handmade.Feed(
        handmade.load(settings["packed"]), settings["steps"], BATCH, rank, context.get_world_size()
    )
    model = prepare_model(handmade.network())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, fused=True)
    loss_of = torch.nn.functional.binary_cross_entropy_with_logits
    for numbers, codes, target in feed:
        loss = loss_of(model(numbers, codes), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    Path(f"{settings['out']}.{rank}").write_text(json.dumps(feed.stamps))
    if rank == 0:
        torch.save(model.module.state_dict(), f"{settings['out']}.weights")


def main(packed: str, steps: int, scratch: str) -> list[list[float]]:
    """Run it; the stamps of every rank."""
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    keep_ahead()
    here = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": WORLD, "include_dashboard": False}
    ray.init(log_to_driver=False, logging_level="error", **here)
    out = f"{scratch}/by_hand-{os.getpid()}"
    TorchTrainer(
        worker,
        train_loop_config={"packed": packed, "steps": steps, "out": out},
        scaling_config=ScalingConfig(num_workers=WORLD),
        run_config=RunConfig(storage_path=f"{out}-storage"),
    ).fit()
    return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(WORLD)]


if __name__ == "__main__":
    from measure import emit

    stamps = main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    emit(
        rows_per_second=sum(handmade.rate(each, BATCH) for each in stamps),
        start_seconds=max(each[1] for each in stamps) - float(os.environ["BENCH_STARTED"]),
    )
