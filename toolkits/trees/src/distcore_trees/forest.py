"""What a library of boosted trees is asked for: a forest that grows, and one that was saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Part = Literal["train", "validation"]


class Forest(Protocol):
    """The trees of one output feature while they are boosted."""

    def grow(self) -> bool:
        """Boost one round more.

        Returns:
            False if no split improves anything any more.
        """
        ...

    def outputs(self, part: Part) -> NDArray[np.float32]:
        """What the trees so far make of the rows that the forest was begun with.

        Returns:
            Probabilities [rows] or [rows, classes], or encoded values [rows].
        """
        ...

    def content(self) -> bytes:
        """Everything grown so far, from which a forest begun with `before` goes on to the same
        bits. Called after every evaluation, whether it is kept or not."""
        ...

    def first(self, rounds: int) -> bytes:
        """The trees of the first rounds, for the model's folder."""
        ...


class Saved(Protocol):
    """Trees that were read from a file."""

    def outputs(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Of inputs [rows, columns]; as `Forest.outputs`."""
        ...
