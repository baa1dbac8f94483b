"""Training on a GPU: ours against a loop by hand whose step is one CUDA graph.

    python bench/stage_gpu.py VARIANT DATA CACHE_DIR PACKED SCRATCH BATCH STEPS

The network of these benchmarks; all clip the norm of the gradients and use fused Adam. By hand, all
rows lie on the GPU. Rows a second are those between batch 100 and the last, at both of which the
GPU is waited for. Ours loads: from the host's memory, shuffled, through pinned memory; `kept` is
ours with 64 batches that are on the GPU already, where nothing is to be waited for, and `launched`
ours without graphs (`trainer.replay: false`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import handmade
from measure import emit
from results import Row, at_least, row
from setting import MORE_PLUGINS, Bench
from stage_train import figures, fitted, prepared, training

TITLE = "training on a GPU"
WARM = 100
CLIP = 0.5
KEPT = 64
BATCHES = (1024, 8192)


def by_hand(packed: str, batch: int, steps: int, graph: bool, bf16: bool) -> None:
    """The loop a careful user writes for a GPU."""
    import torch

    matrix, net = handmade.load(packed).cuda(), handmade.network().cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.001, fused=True, capturable=graph)
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
    generator = torch.Generator("cuda").manual_seed(0)
    rows = len(matrix)
    order = torch.cat(
        [
            torch.randperm(rows, generator=generator, device="cuda")
            for _ in range(-(-steps * batch // rows))
        ]
    )
    static, total = torch.empty_like(matrix[:batch]), torch.zeros((), device="cuda")

    def step() -> None:
        numbers, codes, target = handmade.views(static)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
            logits = net(numbers, codes)
        loss = cross_entropy(logits.float(), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP, foreach=True)
        optimizer.step()
        total.add_(loss.detach())

    make = step
    if graph:
        torch.index_select(matrix, 0, order[:batch], out=static)
        make = captured(step, net, optimizer)
        total.zero_()
    stamps = []
    for index in range(steps):
        if index in (WARM, steps - 1):
            torch.cuda.synchronize()
        stamps.append(time.time())
        torch.index_select(matrix, 0, order[index * batch : (index + 1) * batch], out=static)
        make()
    emit(**figures(stamps, float(total) / steps, handmade.parameters(net), batch, WARM))


def captured(step: Callable[[], None], net: Any, optimizer: Any) -> Callable[[], None]:
    """The step as one CUDA graph; net and optimizer are as if it had never been made."""
    import torch

    state = {name: each.clone() for name, each in net.state_dict().items()}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    net.load_state_dict(state)
    for each in optimizer.state.values():
        for value in each.values():
            value.zero_()
    return graph.replay


def ours(
    data: str, cache: str, scratch: str, batch: int, steps: int, repeat: int = 0, **trainer: Any
) -> None:
    """`distcore.train`."""
    stamps = Path(scratch) / f"stamps-{os.getpid()}"
    options = {
        "train_steps": steps,
        "batch_size": batch,
        "steps_per_checkpoint": steps,
        "gradient_clipping": {"clipglobalnorm": CLIP},
        **trainer,
    }
    settings = training(cache, stamps, options, {"type": "local", "use_gpu": True})
    settings["backend"]["loader"] |= {"settle": [WARM, steps - 1], "repeat": repeat}
    emit(**fitted(settings, data, Path(scratch), stamps, batch, WARM, threads=None))


def main() -> None:
    variant, data, cache, packed, scratch, batch, steps = sys.argv[1:8]
    kind, _, precision = variant.partition("_")
    bf16, rows, count = precision == "bf16", int(batch), int(steps)
    if kind in ("graph", "eager"):
        by_hand(packed, rows, count, kind == "graph", bf16)
        return
    options = {"use_mixed_precision": bf16, "replay": kind != "launched"}
    if kind == "unwatched":
        options["ledger_steps"] = 0
    ours(data, cache, scratch, rows, count, KEPT * (kind == "kept"), **options)


def measure(bench: Bench) -> list[Row]:
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU here")
    # Whole batches of both sizes: what an epoch's last one costs is no part of this.
    rows, steps = bench.pick((244 * 8192, 1_900), (24 * 8192, 400))
    data, cache, packed = prepared(bench, rows)
    scratch = bench.data / "gpu"
    scratch.mkdir(exist_ok=True)
    device, found_rows = torch.cuda.get_device_name(), []
    for batch in BATCHES:
        names = ("distcore", "graph", "kept")
        if batch == BATCHES[0]:
            names += ("unwatched", "launched", "eager")
        else:
            names += ("distcore_bf16", "graph_bf16")
        commands = {
            name: bench.script("stage_gpu.py", name, data, cache, packed, scratch, batch, steps)
            for name in names
        }
        found = bench.compare(commands, (2, 1), "step_ms", MORE_PLUGINS)
        losses = ", ".join(f"{name} {found.median(name, 'loss'):.4f}" for name in names)
        of, key, unit = f"batches of {batch:,}", "rows_per_second", "rows/s"
        pairs = [
            (f"float32, {of}", "distcore", "graph", at_least(0.98), "by hand, one CUDA graph"),
            (f"its loader, {of}", "distcore", "kept", at_least(0.99), "ours, batches that are there"),
            (f"the ledger's looks, {of}", "distcore", "unwatched", None, "ours, trainer.ledger_steps 0"),
            (f"kernel by kernel, {of}", "launched", "eager", None, "by hand, kernel by kernel"),
            (f"graphs, {of}", "distcore", "launched", None, "ours, kernel by kernel"),
            (f"bf16, {of}", "distcore_bf16", "graph_bf16", at_least(0.98), "by hand, one CUDA graph, bf16"),
        ]  # fmt: skip
        found_rows += [
            row(found, what, mine, peer, key, unit, target, peer_is=peer_is, note=f"{device}; mean losses over {steps} steps: {losses}")
            for what, mine, peer, target, peer_is in pairs
            if {mine, peer} <= set(names)
        ]  # fmt: skip
    return found_rows


if __name__ == "__main__":
    main()
