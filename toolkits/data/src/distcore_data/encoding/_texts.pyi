from typing import Any

def encoded(
    offsets: Any, wide: bool, data: Any, valid: Any, first: int, count: int, target: Any, /
) -> tuple[bytes, bytes] | None: ...
def find(
    vocabulary: object,
    offsets: Any,
    wide: bool,
    data: Any,
    valid: Any,
    first: int,
    count: int,
    unknown: int,
    target: Any,
    /,
) -> bool | None: ...
def split(
    offsets: Any, wide: bool, data: Any, first: int, count: int, separator: int, /
) -> tuple[bytes, bytes, tuple[bytes, bytes]] | None: ...
def tally(codes: Any, counts: Any, /) -> None: ...
def vocabulary(offsets: Any, wide: bool, data: Any, first: int, count: int, /) -> object | None: ...
