"""Modin's engine on Ray: tasks go through its wrapper, rows lie in its partitions. The only file
that imports Modin.

Modin keeps references to objects of the Ray it met first in its classes (for `iloc`, for functions
of axis operations), which are stale after another `ray.init`. So nothing here slices or maps
through Modin's frames: partitions are made and unwrapped, and tasks are handed to its engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from distcore_core.errors import UserError
from distcore_core.plugin import BACKEND, Backend, Plugins
from distcore_data.waiting import until


class ModinEngine:
    """The Ray that this process is connected to, or else the one that the backend `ray` joins or
    starts: as safe as its own. Left at `close`.

    Raises:
        UserError: Modin was told to run on another engine, or that backend refuses the cluster.
    """

    def __init__(self) -> None:
        import ray

        _require_ray()
        self._backend: Backend | None = None
        try:
            if not ray.is_initialized():
                self._backend = Plugins().make(BACKEND, "ray")
                list(self._backend.map(abs, [0]))  # it joins or starts its cluster for a task
            self.cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
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
        import ray

        everything = list(references)
        if everything:
            until(lambda: not ray.wait(everything, num_returns=len(everything), timeout=1.0)[1])
        found: list[Any] = self._wrapper.materialize(everything)
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
        """Leave the cluster, unless somebody else had connected this process."""
        if self._backend is not None:
            self._backend.close()
            self._backend = None


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
