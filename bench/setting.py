"""Where a benchmark run keeps its data, how large it is, and how its child processes are
started."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import make_data
from measure import Comparison, compare, say

HERE = Path(__file__).parent
CONFIG = HERE / "config.yaml"

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS", "NUMEXPR_NUM_THREADS"), "1")  # fmt: skip
"""Environment of a child that computes with one thread."""

MORE_PLUGINS = {
    "PYTHONPATH": os.pathsep.join(
        filter(None, [str(HERE / "stamped"), os.environ.get("PYTHONPATH")])
    )
}
"""Environment of a child that finds the loader `stamped`: the folder holds its metadata as an
installed one's would."""


@dataclass(frozen=True)
class Bench:
    """A run. data: folder for everything made here. quick: small rows, few rounds; ratios are told,
    not judged.

    ludwig: a Python that has Ludwig, or None. plain: one that has distcore and what it needs, and
        nothing else.
    tensorflow: one that has TensorFlow, or None."""

    data: Path
    quick: bool = False
    ludwig: str | None = None
    plain: str = sys.executable
    tensorflow: str | None = None

    def pick(self, full: Any, quick: Any) -> Any:
        return quick if self.quick else full

    # -------------------------------------------------------------- data

    def csv(self, rows: int) -> Path:
        return self._made(f"tab_{rows}.csv", rows)

    def parquet(self, rows: int) -> Path:
        return self._made(f"tab_{rows}.parquet", rows)

    def holdout(self, rows: int = 50_000) -> Path:
        """Rows of the same distribution that no training set holds."""
        return self._made(f"holdout_{rows}.parquet", rows, first=1000)

    def _made(self, name: str, rows: int, first: int = 0) -> Path:
        path = self.data / name
        if not path.exists():
            say(f"  making {name}")
        return make_data.write(path, rows, first=first)

    # -------------------------------------------------------------- children

    def script(self, name: str, *arguments: Any, python: str = sys.executable) -> list[str]:
        """The command that runs one variant of a stage in a process of its own."""
        return [python, str(HERE / name), *map(str, arguments)]

    def compare(
        self,
        variants: Mapping[str, Sequence[str]],
        rounds: tuple[int, int],
        key: str,
        environment: Mapping[str, str] | Mapping[str, Mapping[str, str]] | None = None,
        folder: Path | None = None,
    ) -> Comparison:
        """See `measure.compare`. rounds: full, quick. environment: of all, or {variant: its
        own}."""
        environments: dict[str, Mapping[str, str]] = {}
        for name in variants:
            found = (environment or {}).get(name, environment)
            environments[name] = found if isinstance(found, Mapping) else {}
        return compare(variants, self.pick(*rounds), key, environments, folder=folder)


def config(**sections: Any) -> dict[str, Any]:
    """config.yaml with whole sections replaced, or changed if both are mappings."""
    read: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    for name, section in sections.items():
        known = read.get(name)
        read[name] = (
            {**known, **section}
            if isinstance(known, dict) and isinstance(section, dict)
            else section
        )
    return read


def all_training() -> dict[str, Any]:
    """The `preprocessing` section that gives every row to training."""
    return {"split": {"type": "random", "probabilities": [1.0, 0.0, 0.0]}}
