"""Which backend a command works on, and why."""

from __future__ import annotations

import logging
from typing import Any

from distcore_core.contracts import BACKEND, Backend
from distcore_core.errors import UserError
from distcore_core.registry.index import DEFAULTS
from distcore_core.registry.manager import Plugins
from distcore_torch.training.launched import launched_apart, tasks_of_srun

log = logging.getLogger("distcore")


def make_backend(plugins: Plugins, name: str, options: Any) -> Backend:
    """The backend. A launcher's process that another one leads does its part, and ends; it comes
    back from there only if it has to lead from now on, because the one that led is lost."""
    made: Backend = plugins.make(BACKEND, name, options)
    made.follow()
    tasks = tasks_of_srun()
    if tasks > 1 and (name == "ray" or not made.distributed):  # else it joined them, presumably
        log.warning(
            "srun started %d tasks, and the backend `%s` makes a run of its own of each. For one "
            "run, start one task (srun -n 1), or a torchrun on each machine.",
            tasks,
            name,
        )
    return made


JOINING, ITS_PRIORITY = "horovod", 80
"""The backend that joins the processes of a launcher, and how strongly it says that it does."""


def choose_backend(named: str | None, plugins: Plugins) -> tuple[str, str]:
    """The backend's name and why: the config (or the command line) names it, it was detected, or
    nothing else was.

    Raises UserError where each of a launcher's processes would make a run of its own, because no
    backend joins them."""
    if named:
        return named, "named in the config or on the command line"
    found = plugins.detect()
    broken = [
        f"The backend {name} cannot be asked whether it is meant here: {error.removesuffix('.')}."
        for name, error in plugins.unasked.items()
    ]
    lost = JOINING in plugins.unasked  # and whatever speaks no louder would not join them
    unjoined = not found or (lost and found[0].priority <= ITS_PRIORITY)
    if unjoined and (apart := launched_apart()) is not None:
        raise UserError(
            f"{apart[0]} started {apart[1]} processes, and no backend joins them: each would "
            f"make a run of its own. {''.join(f'{each} ' for each in broken)}For one run, have "
            "distcore-horovod installed (`distcore plugins` says whether it can be used); for "
            "one in each process, give --backend local."
        )
    for each in broken:
        log.warning("%s", each)
    if found:
        return found[0].backend, found[0].reason
    return DEFAULTS["backends"], "no cluster and no launcher was detected"
