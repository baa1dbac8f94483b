"""Whether every node of the cluster sees the files of a run: asked before work begins, not found
out after hours."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    RayTaskError,
    TaskUnschedulableError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from distcore_core.errors import UserError
from distcore_ray.failures import last_line

log = logging.getLogger("distcore")

SECONDS = 60.0
"""How long a node may take to answer; one that does not is not asked (it may just be starting)."""

GONE = (
    TaskUnschedulableError,
    NodeDiedError,
    LocalRayletDiedError,
    WorkerCrashedError,
    ObjectLostError,
)
"""What Ray says of a task on a node that died a moment ago, while it was still in the list of
those alive."""

IMPORTS = "remote function failed to import on the worker"
"""What Ray says, above the traceback, of a function whose module a node does not have."""


def check(read: Mapping[str, str], written: Mapping[str, str]) -> None:
    """{what it is: path}: of files and folders that are read, and of folders that are written to or
    will be made.

    Raises UserError naming the first place that a node does not see, and the node. Leaves
    nothing behind."""
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    if {node["NodeID"] for node in nodes} <= {ray.get_runtime_context().get_node_id()}:
        return
    wanted = {what: _content(Path(path)) for what, path in read.items()}
    marks = []
    try:
        for what, path in written.items():
            mark = _mark(Path(path).absolute())
            if mark is not None:
                marks.append(mark)
                wanted[what] = (str(mark), 0)
        _ask(nodes, wanted, {**read, **written})
    finally:
        for mark in marks:
            mark.unlink(missing_ok=True)


def _content(path: Path) -> tuple[str, int]:
    """A file's path and length, or those of a folder's first entry (its length does not count:
    -1)."""
    path = path.absolute()
    if path.is_file():
        return str(path), path.stat().st_size
    names = sorted(os.listdir(path))
    return str(path / names[0]) if names else str(path), -1


def _mark(path: Path) -> Path | None:
    """A fresh file in the folder, or in the nearest one above it that exists; None: nothing may
    be written there."""
    folder = next(each for each in (path, *path.parents) if each.is_dir())
    mark = folder / f".distcore-visible-{uuid.uuid4().hex}"
    try:
        mark.write_bytes(b"")
    except OSError:  # told in full by whoever writes there
        return None
    return mark


def _ask(
    nodes: list[dict[str, Any]], wanted: Mapping[str, tuple[str, int]], places: Mapping[str, str]
) -> None:
    look = ray.remote(num_cpus=0, max_retries=0)(_missing)
    asked = {}
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked[look.options(scheduling_strategy=there).remote(dict(wanted))] = node
    answered, late = ray.wait(list(asked), num_returns=len(asked), timeout=SECONDS)
    for reference in late:
        ray.cancel(reference)
    for reference in answered:
        try:
            missing = ray.get(reference)
        except GONE:
            log.info(
                "Node %s was lost before it could be asked.", asked[reference]["NodeManagerAddress"]
            )
            continue
        except RayTaskError as error:
            if IMPORTS not in str(error):
                raise
            raise UserError(
                f"The node {asked[reference]['NodeManagerAddress']} of the Ray cluster cannot "
                f"import distcore_ray: {last_line(error)}. Install distcore-ray there, for the "
                "Python that Ray runs with, in the versions that are here."
            ) from error
        if missing:
            node, what, place = asked[reference], missing[0], places[missing[0]]
            named = what if place in what else f"{what}: {place}"
            raise UserError(
                f"The node {node['NodeManagerAddress']} of the Ray cluster does not see {named}. "
                "Put it on a file system that every node mounts at the same path (NFS, EFS, FSx, "
                "Lustre, …; docs/ray.md, Storage)."
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
