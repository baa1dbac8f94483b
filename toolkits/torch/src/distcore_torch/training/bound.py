"""Which of a trainer's own options a run, or a search, is gone on with as it was begun."""

from __future__ import annotations

from abc import abstractmethod

from distcore_core.contracts import JSON, TrainerBase


class BoundTrainer(TrainerBase):
    """A trainer some of whose options only say where, or how fast, it trains."""

    @property
    @abstractmethod
    def bound(self) -> JSON:
        """The others, {option: value}: the model depends on them."""
