"""Modin's engine on Ray: tasks go through its wrapper, rows lie in its partitions. The only file
that imports Modin.

Modin keeps references to objects of the Ray it met first in its classes (for `iloc`, for functions
of axis operations), which are stale after another `ray.init`. So nothing here slices or maps
through Modin's frames: partitions are made and unwrapped, and tasks are handed to its engine.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from distcore_core.errors import UserError

log = logging.getLogger("distcore")

TOKENS = "RAY_AUTH_MODE"
"""Whether Ray's clusters ask for tokens. Ray sets it when it starts one, and leaves it."""


class ModinEngine:
    """The Ray that this process is connected to, the one RAY_ADDRESS names, or a new one here
    until `close`."""

    def __init__(self) -> None:
        import ray

        self._ours = not ray.is_initialized()
        self._tokens = os.environ.get(TOKENS)
        if self._ours:
            _read_settings_anew()
            address = os.environ.get("RAY_ADDRESS") or "local"
            if address == "local":
                log.info(
                    "modin: no Ray cluster is connected, so one is started on this machine for "
                    "preprocessing."
                )
            quiet: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING, **quiet)
        self.cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        try:
            _require_ray()
            from modin.core.execution.ray.common import RayWrapper
        except BaseException:
            self.close()
            raise
        self._wrapper = RayWrapper

    def put(self, value: Any) -> Any:
        """A reference to an object that every task may use."""
        import ray

        return ray.put(value)

    def run(self, function: Callable[..., Any], *arguments: Any, returns: int = 1) -> Any:
        """Begin a task; references to its results."""
        return self._wrapper.deploy(function, arguments, num_returns=returns)

    def values(self, references: Sequence[Any]) -> list[Any]:
        """Wait for the results."""
        found: list[Any] = self._wrapper.materialize(list(references))
        return found

    def frame(self, blocks: Sequence[Any], rows: Sequence[int], names: Sequence[str]) -> Any:
        """A modin.pandas.DataFrame of these blocks, whose index is the row number. Nothing is
        read for it."""
        import pandas as pd
        from modin.distributed.dataframe.pandas import from_partitions

        return from_partitions(
            list(blocks),
            axis=0,
            index=pd.RangeIndex(sum(rows)),
            columns=pd.Index(names),
            row_lengths=list(rows),
            column_widths=[len(names)],
        )

    def blocks(self, frame: Any) -> list[Any]:
        """References to the frame's blocks, in row order."""
        from modin.distributed.dataframe.pandas import unwrap_partitions

        return [row[0] for row in unwrap_partitions(frame)]

    def close(self) -> None:
        """Shut down the Ray that was started here."""
        import ray

        if self._ours:
            self._ours = False
            ray.shutdown()
            os.environ.pop(TOKENS, None)
            if self._tokens is not None:
                os.environ[TOKENS] = self._tokens


def _read_settings_anew() -> None:
    """Ray's native library remembers whether the cluster before this one used tokens, and would
    be dead to this one."""
    native: Any = importlib.import_module("ray._raylet")
    native.Config.initialize("")
    native.AuthenticationTokenLoader.instance().reset_cache()


def _require_ray() -> None:
    """Raises UserError if Modin was told to run on another engine in this process; Ray is its
    own default."""
    from modin.config import Engine, StorageFormat

    for setting, wanted in ((Engine, "Ray"), (StorageFormat, "Pandas")):
        if setting.get() != wanted:
            raise UserError(
                f"The modin processor runs on Modin's {wanted} {setting.__name__.lower()}, but in "
                f"this process {setting.varname} is {setting.get()}. Unset {setting.varname}, or "
                "use another processor."
            )
