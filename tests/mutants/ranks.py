"""What ranks of the faulty backends run instead of their function: a module of its own, so that a
rank imports nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from distcore_core.contracts import Rank


@dataclass(frozen=True)
class Instead:
    """A function that runs as another rank."""

    function: Callable[..., Any]

    def __call__(self, rank, *arguments):
        return self.function(self.seen(rank), *arguments)

    def seen(self, rank):
        """What the function is told."""
        return rank


class FirstHere(Instead):
    def seen(self, rank):
        return replace(rank, local_rank=0)


class Alone(Instead):
    def seen(self, rank):
        os.environ["DISTCORE_STORE"] += f"-{rank.index}"
        return Rank()


class Untold(Instead):
    def seen(self, rank):
        os.environ.pop("LOCAL_WORLD_SIZE")
        return rank
