"""How ranks find each other: Ray Train's `BackendConfig`, ours for torch.distributed, or one that
the group brings.

A trainer with a library of its own names "module:function" in `WorkerGroup.rendezvous["ray"]`. That
function is called with the group on the driver and gives a `ray.train.backend.BackendConfig`.
Whatever environment variables its `on_start` sets in the workers, the ranks have.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from ray.train.backend import Backend, BackendConfig

from distcore_core.contracts import WorkerGroup
from distcore_core.errors import UserError
from distcore_torch.training.meeting import INTERFACES, free_port, interface_of

LOOPBACK = "127.0.0.1"


def rendezvous_of(group: WorkerGroup) -> BackendConfig:
    """What the worker group brings for Ray, or torch's."""
    named = group.rendezvous.get("ray")
    if named is None:
        return TorchRendezvous()
    module, _, function = named.partition(":")
    try:
        made = getattr(importlib.import_module(module), function)(group)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"The trainer's rendezvous on Ray, {named}, cannot be loaded: {error}."
        ) from error
    return made


class TorchRendezvous(BackendConfig):
    """MASTER_ADDR and MASTER_PORT of rank 0 for every rank, as `distcore_torch.training.meeting`
    reads them.

    Ranks on one node meet, and listen, on its loopback; others on the address that their nodes
    have in the cluster."""

    @property
    def backend_cls(self) -> type[Backend]:
        return _TorchBackend


class _TorchBackend(Backend):
    share_cuda_visible_devices = True

    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        alone = len(set(worker_group.execute(_node))) == 1
        address, port = worker_group.execute_single(0, _free_address, alone)
        worker_group.execute(_point_to, address, port, alone)


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _free_address(alone: bool) -> tuple[str, int]:
    import ray

    address = LOOPBACK if alone else ray.util.get_node_ip_address()
    return address, free_port(address)


def _point_to(address: str, port: int, alone: bool) -> None:
    import ray

    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = address, str(port)
    # Gloo asks for the host's name otherwise, which need not resolve, or not to what other nodes
    # reach.
    interface = interface_of(LOOPBACK if alone else ray.util.get_node_ip_address())
    if interface:
        for name in INTERFACES:
            os.environ.setdefault(name, interface)
