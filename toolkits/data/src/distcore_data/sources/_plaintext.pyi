from collections.abc import Sequence
from typing import Any

def deepest(text: Any, /) -> int: ...
def hash(text: Any, /) -> int: ...
def lines(text: Any, /) -> int: ...
def rows(
    text: Any,
    delimiter: int,
    kinds: bytes,
    powers: bytes,
    room: int,
    values: Sequence[Any],
    valid: Sequence[Any],
    /,
) -> tuple[int, list[tuple[int] | tuple[int, bytes, bytes] | None]] | None: ...
