"""A run's folder in a bucket: claimed, held while somebody works there, and filled at the end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from distcore_core.errors import StoreError, UserError
from distcore_data.run_files import DESCRIPTION, RECEIPT, TRAINING_LOG
from distcore_data.stores.run_sync import CHECKPOINTS, MANIFEST, RUNNING, STARTED, WAITS, Mirror
from distcore_data.temporaries import LOCK
from distcore_torch.training.ledger import LEDGER

if TYPE_CHECKING:
    from distcore_data.stores import Credentials

BEGINNING = (DESCRIPTION, RECEIPT, LEDGER, TRAINING_LOG, LOCK, WAITS)
"""Files that a run, or a search, has before its first checkpoint, or trial."""

TAKEN = (
    "Another process is training in {}. Wait for it, or stop it; then go on with its run, or begin "
    "one of your own without --model_resume_path."
)

log = logging.getLogger("distcore")


@contextmanager
def fresh_there(root: str, name: str, credentials: Credentials | None) -> Iterator[Mirror]:
    """A run's folder at `<root>/<name>`, with a number behind it if a run is or was there, held. A
    run that was killed before it had saved anything makes room.

    Raises UserError if no object can have that name."""
    with ExitStack() as held:

        def held_here(mirror: Mirror, *, fresh: bool = False) -> bool:
            with suppress(UserError):  # somebody else is at work there
                held.enter_context(alone_there(mirror, fresh))
                return True
            return False

        def makes_room(mirror: Mirror) -> bool:
            if not _holds_nothing(mirror) or not held_here(mirror):
                return False
            if not _holds_nothing(mirror):  # it was used, and left, before it was held
                held.close()
                return False
            mirror.store.delete(sorted(mirror.store.list().keys() - {STARTED, RUNNING}))
            taken.append(mirror)
            return True

        taken: list[Mirror] = []
        while True:
            mirror = Mirror.begin(root, name, credentials, makes_room)
            if taken or held_here(mirror, fresh=True):
                break  # else it was taken for abandoned before it was held
        yield mirror


def _holds_nothing(mirror: Mirror) -> bool:
    """Whether only that lies there with which a run begins, and nothing to go on from."""
    names = mirror.store.list()
    return not mirror.folders(CHECKPOINTS, MANIFEST) and all(
        name in (STARTED, RUNNING, *BEGINNING) or name.startswith(f"{CHECKPOINTS}/")
        for name in names
    )


@contextmanager
def alone_there(mirror: Mirror, fresh: bool = False) -> Iterator[None]:
    """Hold a run's folder: of two processes that train in it, each would remove what the other
    saves. It may take half a minute to see that the process which held it is dead.

    Raises UserError if another one lives.

    fresh: this process has claimed the folder, and the claim is given up if it cannot be held."""
    from distcore_data.stores import lease as leases

    def say() -> None:
        log.info(
            "A process was at work in %s. Looking for up to %.0f s whether it still is.",
            mirror.url,
            leases.PATIENCE,
        )

    with leases.Lease(mirror.store, RUNNING) as lease:
        try:
            held = lease.acquire_from_the_dead(say)
        except StoreError:
            if fresh:
                with suppress(StoreError):
                    mirror.remove()
            raise
        if not held:
            raise UserError(TAKEN.format(mirror.url))
        mirror.holder = lease.id
        yield


@contextmanager
def put_at_the_end(mirror: Mirror, folder: Path) -> Iterator[None]:
    """Put into the bucket what the block leaves in the folder; what stops the block matters more
    than the bucket."""
    try:
        yield
    except BaseException:
        with suppress(StoreError):
            mirror.put_files(folder)
        raise
    mirror.put_files(folder)
