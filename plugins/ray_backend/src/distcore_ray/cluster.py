"""The connection to a Ray cluster: the one we are in, the one that is named or found, or a small
one started here."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import Resources
from distcore_core.errors import DistcoreError, UserError
from distcore_data.gpus import gpus
from distcore_data.memory import free_bytes
from distcore_data.threads import processors
from distcore_ray import settings
from distcore_ray.address import (
    HOMELESS,
    PROBE_SECONDS,
    Found,
    address_file,
    detect,
    greet,
    has_home,
    is_loopback,
)
from distcore_ray.head import ask
from distcore_ray.session import Session

if TYPE_CHECKING:
    from distcore_ray.options import BackendOptions

CONNECT_SECONDS = 3.0
"""How long the head of a named cluster may take to accept a connection."""

log = logging.getLogger("distcore")


def target(options: BackendOptions) -> Found | None:
    """The cluster to join, or None if one is to be started here. Looks, and joins nothing.

    Raises UserError if what was asked for is not there, or is no cluster's address."""
    if options.address == "local":
        return None
    if options.address not in (None, "auto"):
        return _checked(Found(str(options.address), "backend.address names it", 0), options)
    found = detect()
    if found is None and options.address is None:
        return None
    if found is None:
        raise UserError(
            "backend.address is auto, but no Ray cluster is found here: RAY_ADDRESS is not set, "
            f"and {_file_in_words()}. Start one (`ray start --head`), name its address, or leave "
            "backend.address out."
        )
    if found.address == "local":
        return None
    if options.sizes:
        raise UserError(
            "backend.num_cpus, num_gpus and object_store_memory are for a cluster that is started "
            f"here, but there is one to join: {found.reason}. Leave them out, or set "
            "backend.address to local."
        )
    return _checked(found, options)


def _file_in_words() -> str:
    file = address_file()
    if file is None:
        return "there is no address file of yours"
    return f"{file.path} names {file.address}, where {file.trouble or 'one answers'}"


def _checked(found: Found, options: BackendOptions) -> Found:
    if not found.address:  # inside a worker: only Ray knows
        file = address_file()
        return (
            found
            if file is None or file.trouble
            else Found(file.address, found.reason, found.priority)
        )
    if found.address.startswith(("http://", "https://")):
        raise UserError(
            f"{found.reason}, which is the job server of a Ray cluster. Submit the command there "
            "(`ray job submit --working-dir . -- distcore train …`), or unset it to run here."
        )
    if "://" in found.address:
        raise UserError(
            f"{found.reason}: Ray Client cannot train. Submit the command as a job (`ray job "
            "submit`), or give the address of the head from inside the cluster (host:6379)."
        )
    near = is_loopback(found.address)
    trouble, _ = greet(found.address, PROBE_SECONDS if near else CONNECT_SECONDS)
    if trouble:
        raise UserError(
            f"There is no Ray cluster at {found.address} ({found.reason}): {trouble}. Start it, "
            "name another, or set backend.address to local to run on this machine."
        )
    if not near:
        refuse_open(found, options)
    return found


def refuse_open(found: Found, options: BackendOptions) -> None:
    """Raise UserError for a cluster on the network that asks for no token, unless the user said
    that it is fine."""
    allowed = options.allow_open_cluster or os.environ.get("DISTCORE_RAY_ALLOW_OPEN_CLUSTER") == "1"
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "token" or allowed:
        return
    raise UserError(
        f"The Ray cluster {found.address} ({found.reason}) can be reached over the network, and "
        "here no token is used. If it asks for one, as `ray start` told, set RAY_AUTH_MODE=token "
        "here too. If not, whoever reaches it can run code there: start it again with "
        "RAY_AUTH_MODE=token in its environment (docs/ray.md, Security); or, if only you can reach "
        "it, say so with backend.allow_open_cluster: true or DISTCORE_RAY_ALLOW_OPEN_CLUSTER=1."
    )


def connect(options: BackendOptions) -> Session | None:
    """Join the cluster, or start one on this machine; says which in one line.

    Returns:
        What ends it again; None: somebody else has connected this process.

    Raises:
        UserError: What was named is not there or may not be used.
        DistcoreError: Ray gives up.
    """
    if is_connected():
        import ray

        address = ray.get_runtime_context().gcs_address
        log.info("Using the Ray cluster %s that this process is connected to.", address)
        return None
    if not has_home():
        raise UserError(f"{HOMELESS}, or run with --backend local.")
    found = target(options)
    ours = Session(starting=found is None)
    ours.begin()
    try:
        with settings.signals_kept():
            if found is None:
                _start(options, ours)
            else:
                _join(found, options)
        return ours
    except BaseException as error:
        ours.end(keep=isinstance(error, Exception))  # a signal leaves no log that says why
        raise


def _join(found: Found, options: BackendOptions) -> None:
    import ray

    # Ray looks for its own address inside a worker and finds a token by itself only for "auto"; a
    # token is never sent to an address that is not of this machine unless the user set
    # RAY_AUTH_MODE.
    if found.address and is_loopback(found.address) and "RAY_AUTH_MODE" not in os.environ:
        settings.use_token_of_this_machine()
    ask(found)
    try:
        ray.init(address=found.address or "auto", **_shared(options))
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(
            f"The Ray cluster {found.address or 'around this process'} ({found.reason}) cannot be "
            f"joined: {error}. Python and Ray must have the same version there as here, and a "
            "cluster with tokens needs RAY_AUTH_MODE=token and the token."
        ) from error
    context = ray.get_runtime_context()
    size = resources_of(ray.nodes())
    log.info(
        "Using the Ray cluster %s (%s): %d node%s, %d CPUs, %d GPUs.",
        *(
            context.gcs_address,
            found.reason,
            size.nodes,
            "" if size.nodes == 1 else "s",
            size.cpus,
            size.gpus,
        ),
    )


def _start(options: BackendOptions, ours: Session) -> None:
    import ray

    try:
        _start_here(options)
    except Exception as first:  # noqa: BLE001 - as Ray raises
        # Its parts wait too short for each other on a busy machine.
        ours.end_processes(keep=False)
        log.info("A Ray cluster did not start (%s); trying once more.", first)
        try:
            _start_here(options)
        except Exception as error:
            raise DistcoreError(
                f"A Ray cluster could not be started on this machine: {str(error).rstrip('.')}. "
                f"Look into {os.environ.get('RAY_TMPDIR') or '/tmp'}/ray/session_latest/logs, or "
                "run with --backend local."
            ) from error
    ours.started()
    size = resources_of(ray.nodes())
    guarded = (
        "without tokens"
        if os.environ.get("RAY_AUTH_MODE", "").lower() == "disabled"
        else "with a token"
    )
    log.info(
        "Started a Ray cluster on this machine alone (%d CPUs, %d GPUs, %s); it ends with this "
        "run.",
        *(size.cpus, size.gpus, guarded),
    )


def _start_here(options: BackendOptions) -> None:
    import ray

    with settings.on_loopback():
        ray.init(
            address="local",
            include_dashboard=False,
            **_shared(options),
            **options.sizes,
        )


def _shared(options: BackendOptions) -> dict[str, Any]:
    """Arguments of `ray.init` for both: quiet, unless distcore's own log shows everything."""
    shown = log.getEffectiveLevel() <= logging.DEBUG
    given: dict[str, Any] = {
        "log_to_driver": shown,
        "logging_level": logging.INFO if shown else logging.ERROR,
    }
    if options.runtime_env:
        given["runtime_env"] = options.runtime_env
    return given


def resources_of(nodes: list[dict[str, Any]]) -> Resources:
    """What the living nodes of `ray.nodes()` have; a node without CPUs (a head that takes no
    work) suggests no rank."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    cpus = [int(each.get("CPU", 0)) for each in alive]
    return Resources(
        cpus=max(1, sum(cpus)),
        gpus=int(sum(each.get("GPU", 0) for each in alive)),
        nodes=max(1, len(alive)),
        memory_bytes=int(sum(each.get("memory", 0) for each in alive)),
        workers=max(1, sum(count > 0 for count in cpus)),
    )


def is_connected() -> bool:
    """Whether this process is connected to a cluster already."""
    if "ray" not in sys.modules:
        return False
    import ray

    return bool(ray.is_initialized())


def resources_here(options: BackendOptions) -> Resources:
    """What a cluster that is started on this machine would have; Ray is not imported for it."""
    return Resources(
        cpus=options.num_cpus or processors(),
        gpus=gpus() if options.num_gpus is None else options.num_gpus,
        nodes=1,
        memory_bytes=free_bytes(),
        workers=1,
    )
