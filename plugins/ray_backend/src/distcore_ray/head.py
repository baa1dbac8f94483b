"""The first question to the head of a cluster that is to be joined: whether it answers, and with
which Ray."""

from __future__ import annotations

import importlib
from concurrent.futures import wait
from typing import Any

from distcore_core.errors import UserError
from distcore_data.waiting import in_thread
from distcore_ray.address import Found

ASK_SECONDS = 30.0
"""How long the head may take to say which cluster it is; Ray's own attempts go on for minutes."""


def ask(found: Found) -> None:
    """Raise UserError if the cluster does not answer, or was started with another Ray or Python
    than this process has.

    Args:
        found: The cluster; if Ray alone knows its address (inside a worker), nothing is asked.
    """
    if not found.address:
        return
    # In a thread, which can be left behind: Ray's client knows no deadline for the whole.
    answer = in_thread(lambda: _versions(found.address))
    where = f"The Ray cluster {found.address} ({found.reason}) cannot be joined"
    if not wait([answer], ASK_SECONDS).done:
        raise UserError(
            f"{where}: its head accepts connections, but has not answered within {ASK_SECONDS:g} "
            "s. Look whether its gcs_server runs and can be reached from here, name another "
            "cluster, or set backend.address to local."
        )
    error = answer.exception()
    if error is not None:
        raise UserError(
            f"{where}: {str(error).rstrip('.')}. If a cluster's head listens there (port "
            "6379, if not said otherwise), and it asks for a token, RAY_AUTH_MODE=token and the "
            "token are needed here."
        ) from error
    refuse_other_versions(where, answer.result())


def _versions(address: str) -> dict[str, Any]:
    from ray._common.usage.usage_lib import get_cluster_metadata
    from ray._private.services import canonicalize_bootstrap_address

    native: Any = importlib.import_module("ray._raylet")  # to type checkers it is empty
    # `ray.init` takes this machine's own address for 127.0.0.1, too.
    client = native.GcsClient(address=canonicalize_bootstrap_address(address))
    said: dict[str, Any] = get_cluster_metadata(client)
    return said


def refuse_other_versions(where: str, said: dict[str, Any]) -> None:
    """Raise UserError, with both versions, if Ray or Python are not those of this process.

    Args:
        where: Which cluster, as the message begins.
        said: `ray_version` and `python_version` of the cluster.
    """
    from ray._private.utils import check_version_info, compute_version_info

    try:
        check_version_info(said, "here")
    except RuntimeError as error:
        ray, python = compute_version_info()[:2]
        raise UserError(
            f"{where}: it was started with Ray {said['ray_version']} and Python "
            f"{said['python_version']}, but here are Ray {ray} and Python {python}. Use the same "
            "versions in both places."
        ) from error
