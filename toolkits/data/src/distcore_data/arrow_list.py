"""A list whose values Arrow holds: a million labels as Python's own take some 60 MB beside their
bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 1 << 14
"""Values that are Python's own at one time, of a list that is gone through."""


class ArrowList(Sequence[Any]):
    """Texts or whole numbers, read as a list is. It may stand for one in the metadata of a feature;
    as JSON it is that list.

    values: utf8 or int64 [n], none of them null."""

    __hash__ = None  # type: ignore[assignment]  # as a list has none

    def __init__(self, values: pa.Array) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: Any) -> Any:
        found = self.values[place]
        return found.to_pylist() if isinstance(place, slice) else found.as_py()

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(piece.to_pylist() for piece in self.pieces(AT_ONCE))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ArrowList):
            return bool(self.values.equals(other.values))
        return isinstance(other, list) and list(self) == other

    def __repr__(self) -> str:
        return repr(list(self))

    def pieces(self, size: int) -> Iterator[pa.Array]:
        """The values in order, so many at a time."""
        return (self.values[at : at + size] for at in range(0, len(self), size))
