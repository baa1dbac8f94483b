"""One trial in a process of the cluster: the run in a thread, its rounds reported to Tune as
they come."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import SearchJob
from distcore_data.os_errors import is_of_the_system
from distcore_search.records import ROUNDS, end_record, log_of
from distcore_search.rounds import Follower

if TYPE_CHECKING:
    from distcore_ray.shipping import Place
    from distcore_search.options import Scheduler

LOOK_SECONDS = 0.2


def trainable(config: dict[str, Any], job: SearchJob, scheduler: Scheduler, place: Place) -> None:
    """What Tune calls. Tune ends this process if the trial is to stop; the folder holds all
    there is to know. Tune never hears of a round without a value, so where such a one is the last
    that the scheduler lets a trial have, this returns, and Tune ends the process.

    A trial that fails by itself ends here like any other, and its record says that it failed: what
    Tune hears of as a failure is a process that was lost, which it starts again."""
    from ray import tune

    place.enter()
    name, raw = chosen(job, config)
    folder = job.work.folder(name)
    _log_to(log_of(folder))
    follower, seconds = Follower(folder / ROUNDS), 0.0
    failed: list[BaseException] = []
    thread = threading.Thread(
        target=_run, args=(job, name, raw, failed), name="distcore-trial", daemon=True
    )
    thread.start()
    alive = True
    while alive:
        alive = thread.is_alive()
        for found in follower.new():
            value = job.work.objective.of_round(found.metrics)
            if value is not None:  # schedulers count those of an attempt before this one, too
                took, seconds = max(0.0, found.seconds - seconds), found.seconds
                tune.report(
                    {
                        "score": value,
                        "training_iteration": found.number,
                        "time_this_iter_s": took,
                    }
                )
            if alive and scheduler.is_over(found):
                return
        time.sleep(LOOK_SECONDS if alive else 0)
    if failed:
        end_record(
            *(folder, "failed", job.work.objective, repr(failed[0])),
            by_the_system=is_of_the_system(failed[0]),
        )


def _run(job: SearchJob, name: str, raw: Mapping[str, Any], failed: list[BaseException]) -> None:
    try:
        job.function(job.work, name, raw)
    except BaseException as error:  # noqa: BLE001 - told by the thread that waits
        failed.append(error)


def chosen(job: SearchJob, config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The name and the raw parameters of the trial that Tune has this config of."""
    if job.variants is not None:
        return f"{config['number']:04d}", job.variants[config["number"]]
    return config["name"], config["raw"]


def _log_to(path: Path) -> None:
    """What the trial says of itself, in its folder, as with every executor."""
    logger = logging.getLogger("distcore")
    logger.setLevel(logging.INFO)
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
