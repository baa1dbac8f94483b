"""Ray's settings in this process: ours for as long as a cluster is used, and as they were
afterwards.

Ray keeps them in the environment and, beside that, in its native library: whether tokens are used
is read once and stays for the life of the process. A process that had used a cluster with tokens
would then ask the workers of one without for theirs, turn them away, and be taken for dead
(OwnerDiedError). So the library reads them anew each time.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

QUIET = {
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "15",
}
"""Ray's settings for the run, if the user has none: workers stay in their folder, a death is seen
within half a second, and workers that found no room are asked for again (perhaps fewer) after 15
seconds, not 60."""

TOKENS = "RAY_AUTH_MODE"
"""Whether tokens are used. Ray sets it when it starts a cluster, and leaves it."""

LOOPBACK_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""What Ray looks at, on every system, for whether a new cluster is on the loopback interface (0)
or the network (1)."""

Before = dict[str, str | None]
"""{name: value in the environment; None: it was not set}."""


def begin() -> Before:
    """Before a cluster is joined or started: set what the user has not set. Returns what there
    was, for `end`."""
    before = {name: os.environ.get(name) for name in (*QUIET, TOKENS)}
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    native: Any = importlib.import_module("ray._raylet")  # to type checkers it is empty
    native.Config.initialize("")
    native.AuthenticationTokenLoader.instance().reset_cache()
    return before


def end(before: Before) -> None:
    """After the cluster was left: the environment as it was."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def use_token_of_this_machine() -> None:
    """If the user has not said whether tokens are used: use the one in the user's folder, if
    there is one."""
    from ray._private.authentication.authentication_token_setup import (
        maybe_enable_token_auth_if_token_available,
    )

    maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


@contextmanager
def on_loopback() -> Iterator[None]:
    """What is started inside listens on the loopback interface alone; Ray takes the network's also
    for "local".

    Its processes read the environment; this one read it when Ray was imported."""
    from ray._private import ray_constants

    before, read = os.environ.get(LOOPBACK_ONLY), ray_constants.ENABLE_RAY_CLUSTER
    os.environ[LOOPBACK_ONLY], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = read
        end({LOOPBACK_ONLY: before})


@contextmanager
def sigterm_kept() -> Iterator[None]:
    """Ray's native library takes the handler for SIGTERM away when it ends, Python's too: the
    next one would end this process at once, and what Ray has started would stay."""
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


@contextmanager
def signals_kept() -> Iterator[None]:
    """`ray.init()` puts no handler of its own in place of ours for SIGTERM; what it starts does not
    hear a terminal.

    SIGHUP and SIGQUIT of a terminal reach the whole process group. A cluster that ended by them
    would take the ranks along before they have saved; so its processes inherit that these wait, as
    Ray itself has it for SIGINT. One that comes meanwhile comes at the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    from ray._private import utils

    setter, handler = utils.set_sigterm_handler, signal.getsignal(signal.SIGTERM)
    utils.set_sigterm_handler = lambda handler: None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGQUIT))
    try:
        yield
    except KeyboardInterrupt:
        signal.alarm(0)  # see below: it may have begun its three seconds
        raise
    finally:
        utils.set_sigterm_handler = setter
        # Ray's native library has put one beneath Python's, which prints a dump and aborts three
        # seconds later.
        signal.signal(signal.SIGTERM, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
