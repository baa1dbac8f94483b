from collections.abc import Sequence
from typing import Any

def deepest(text: Any, /) -> int: ...
def hash(text: Any, /) -> int: ...
def keys(text: Any, /) -> list[tuple[bytes, int]] | None: ...
def lines(text: Any, /) -> int: ...
def objects(
    text: Any,
    names: Sequence[bytes],
    kinds: bytes,
    powers: bytes,
    room: int,
    values: Any,
    starts: bytes,
    /,
) -> tuple[int, list[tuple[Any, ...]]] | None: ...
def quoted(
    text: Any,
    delimiter: int,
    quote: int,
    kinds: bytes,
    powers: bytes,
    room: int,
    values: Any,
    starts: bytes,
    /,
) -> tuple[int, list[tuple[Any, ...] | None]] | None: ...
def rows(
    text: Any,
    delimiter: int,
    kinds: bytes,
    powers: bytes,
    room: int,
    values: Any,
    starts: bytes,
    /,
) -> tuple[int, list[tuple[Any, ...] | None]] | None: ...
