from typing import Any

def described(
    values: Any, valid: Any, offset: int, count: int, /
) -> tuple[int, bytes, bytes, float, float] | None: ...
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
