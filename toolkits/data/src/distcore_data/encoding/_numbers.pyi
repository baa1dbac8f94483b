from typing import Any

def described(
    values: Any, valid: Any, offset: int, count: int, /
) -> tuple[int, bytes, bytes, float, float] | None: ...
def surely_finite(values: Any, offset: int, count: int, /) -> bool: ...
def scaled(
    values: Any,
    valid: Any,
    offset: int,
    count: int,
    shift: float,
    unit: float,
    fill: float,
    target: Any,
    /,
) -> bool: ...
