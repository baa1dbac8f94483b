"""Whether every node of the cluster sees the files of a run: asked before work begins, not found out after hours."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from distcore.errors import UserError

SECONDS = 60.0
"""How long a node may take to answer; one that does not is not asked (it may just be starting)."""


def check(places: Mapping[str, str]) -> None:
    """places: {what it is: path of a file, or of a folder that is written to (it need not exist yet)}; no URLs.

    Raises UserError naming the first place that a node does not see, and the node. Leaves nothing behind."""
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    if len(nodes) < 2:
        here = ray.get_runtime_context().get_node_id()
        if not nodes or nodes[0]["NodeID"] == here:
            return
    wanted, marks = {}, []
    try:
        for what, path in places.items():
            seen, mark = _evidence(Path(path).absolute())
            wanted[what] = seen
            marks += [mark] if mark is not None else []
        _ask(nodes, wanted, places)
    finally:
        for mark in marks:
            mark.unlink(missing_ok=True)


def _evidence(path: Path) -> tuple[tuple[str, int], Path | None]:
    """What another node must find if it sees this path: a file and its length; and the mark that was made for it."""
    if path.is_file():
        return (str(path), path.stat().st_size), None
    folder = next(each for each in (path, *path.parents) if each.is_dir())
    mark = folder / f".distcore-visible-{uuid.uuid4().hex}"
    try:
        mark.write_bytes(b"")
    except OSError:  # read-only: its entries are evidence enough
        names = sorted(os.listdir(folder))
        return (str(folder / names[0]) if names else str(folder), -1), None
    return (str(mark), 0), mark


def _ask(nodes: list[dict[str, Any]], wanted: Mapping[str, tuple[str, int]], places: Mapping[str, str]) -> None:
    look = ray.remote(num_cpus=0, max_retries=0)(_missing)
    asked = {}
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked[look.options(scheduling_strategy=there).remote(dict(wanted))] = node
    answered, late = ray.wait(list(asked), num_returns=len(asked), timeout=SECONDS)
    for reference in late:
        ray.cancel(reference)
    for reference in answered:
        missing = ray.get(reference)
        if missing:
            node = asked[reference]
            raise UserError(
                f"The node {node['NodeManagerAddress']} of the Ray cluster does not see {missing[0]}: "
                f"{places[missing[0]]}. Put it on a file system that every node mounts at the same path "
                "(NFS, EFS, FSx, Lustre, …; docs/ray.md, Storage)."
            )


def _missing(wanted: Mapping[str, tuple[str, int]]) -> list[str]:
    """Those of the places that this node does not see."""
    found = []
    for what, (path, size) in wanted.items():
        try:
            if size not in (-1, os.stat(path).st_size):
                found.append(what)
        except OSError:
            found.append(what)
    return found
