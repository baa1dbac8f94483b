"""Grid and random search: the raw parameters of every trial, known from the start and the same
for the same seed."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from distcore_core.contracts import Axis

Raw = dict[str, Any]


def variants(
    axes: Mapping[str, Axis],
    samples: int,
    seed: int,
    points: Sequence[Mapping[str, Any]] = (),
    constant: bool = False,
) -> tuple[Raw, ...]:
    """samples × every combination of the grid's positions, in that order, the other parameters
    drawn for each.

    points: what is given of the first samples (a grid's parameter in it is not varied). constant:
    the combinations of one sample share what is drawn."""
    found: list[Raw] = []
    for sample in range(samples):
        given = dict(points[sample]) if sample < len(points) else {}
        grid = [name for name, axis in axes.items() if axis.grid and name not in given]
        for positions in itertools.product(*(range(int(axes[name].high) + 1) for name in grid)):
            fixed = given | dict(zip(grid, positions, strict=True))
            key = sample if constant else len(found)
            found.append(
                {
                    name: fixed[name]
                    if name in fixed
                    else value_at(axes[name], draw(seed, key, name))
                    for name in axes
                }
            )
    return tuple(found)


def value_at(axis: Axis, u: float) -> Any:
    """The raw value of an axis at u in [0, 1): the same for the same u on every machine."""
    whole = axis.kind != "float"
    span = axis.high - axis.low + (1 if whole else 0)
    if axis.log:
        low = axis.low - 0.5 if whole else axis.low
        value = low * ((axis.high + 0.5 if whole else axis.high) / low) ** u
        return min(max(round(value), axis.low), axis.high) if whole else min(value, axis.high)
    if axis.step is not None:
        steps = int((axis.high - axis.low) / axis.step + 1e-9) + 1
        value = axis.low + int(u * steps) * axis.step
        return int(value) if whole else min(value, axis.high)
    return int(axis.low + int(u * span)) if whole else axis.low + u * span


def draw(seed: int, number: int, name: str) -> float:
    """Uniform in [0, 1) for a parameter of a trial: of no library's stream, so the same under
    every version of any."""
    digest = hashlib.sha256(f"{seed}/{number}/{name}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53
