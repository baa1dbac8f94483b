"""One rank's process."""

import os
import pickle
import threading
from multiprocessing import parent_process
from typing import Any

from distcore_core.plugin import DistcoreError, Rank, TrainingError


class Lost(TrainingError):
    """A rank is gone, or failed by what is none of distcore's errors."""

    recurs = False


def main(index: int, world: int, threads: int, store: str, pipe: Any, packed: bytes) -> None:
    """Run the group's function, and tell how it went: (True, result) or (False, error).

    The variables are set before torch is imported, with the function. store: the file in which the
    ranks of one attempt meet."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    told = {"RANK": index, "WORLD_SIZE": world, "LOCAL_RANK": index, "LOCAL_WORLD_SIZE": world}
    told |= {"OMP_NUM_THREADS": threads}
    os.environ |= {**{name: str(value) for name, value in told.items()}, "DISTCORE_STORE": store}
    try:
        function, arguments = pickle.loads(packed)  # noqa: S301 - from our own parent
        pipe.send((True, function(Rank(index=index, world=world, local_rank=index), *arguments)))
    except DistcoreError as error:
        pipe.send((False, error))
    except Exception as error:  # noqa: BLE001 - raised by the process that waits
        pipe.send((False, Lost(f"rank {index} ended: {type(error).__name__}: {error}")))


def _end_with_parent() -> None:
    """A rank that trained on once its driver is killed would write between another run's files."""
    if parent := parent_process():
        parent.join()
        os._exit(1)
