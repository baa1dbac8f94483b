"""What trainers of boosted trees are made with: rows as a matrix, forests grown in lockstep,
rounds, checkpoints.

What is public is exported here, and imported when it is first used; `distcore_core.plugin` has the
roles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distcore_core.lazy import on_first_use

if TYPE_CHECKING:
    from distcore_trees.forest import Forest, Part, Saved
    from distcore_trees.options import TreeOptions
    from distcore_trees.outputs import Output
    from distcore_trees.rows import Rows
    from distcore_trees.trainer import TreeTrainer

__all__ = ["Forest", "Output", "Part", "Rows", "Saved", "TreeOptions", "TreeTrainer"]

__getattr__ = on_first_use(
    __name__,
    {
        "Forest": "forest",
        "Output": "outputs",
        "Part": "forest",
        "Rows": "rows",
        "Saved": "forest",
        "TreeOptions": "options",
        "TreeTrainer": "trainer",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
