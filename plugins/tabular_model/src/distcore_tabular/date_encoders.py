"""Encoders of dates: from their parts, [B, 9] int32, to [B, output_size], float32.

Both see the time that went by since the mean of the dates, in standard deviations, in the place of
Ludwig's bare year: a year of 2024 among ones and zeros is what a network learns nothing beside. A
missing date, whose parts are zeros, has a vector of its own in every table, and zeros elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from distcore_core.contracts import JSON
from distcore_data.encoding.calendar import EPOCH, PARTS
from distcore_tabular.encoders import CategoryEmbed
from distcore_tabular.layers import fc_stack

PERIODS = {
    "month": 12,
    "day": 31,
    "weekday": 7,
    "yearday": 366,
    "hour": 24,
    "minute": 60,
    "second": 60,
    "second_of_day": 86_400,
}
"""How many values each part has, as in Ludwig."""

EMBEDDED = tuple(name for name in PERIODS if name != "second_of_day")
FROM_ONE = ("month", "day", "yearday")
"""Parts that count from 1; what of them is 0 is missing."""


def of(parts: torch.Tensor, name: str) -> torch.Tensor:
    """One of the parts, [B]."""
    return parts[:, PARTS.index(name)]


def present(parts: torch.Tensor) -> torch.Tensor:
    """Which dates are not missing, bool [B]."""
    return of(parts, "month") > 0


class Elapsed(nn.Module):
    """Time since the mean of the dates in standard deviations: [B, 9] → [B, 1], 0 if missing."""

    def __init__(self, metadata: JSON) -> None:
        super().__init__()
        self.middle = math.floor(metadata["mean"])
        self.rest = metadata["mean"] - self.middle
        self.scale = 1.0 / (metadata["std"] or 1.0)

    def forward(self, parts: torch.Tensor) -> torch.Tensor:
        years = of(parts, "year").long() - 1
        leap_days = (
            years.div(4, rounding_mode="floor")
            - years.div(100, rounding_mode="floor")
            + years.div(400, rounding_mode="floor")
        )
        # Whole numbers until the mean is gone: float32 knows no minutes of 20,000 days.
        days = 365 * years + leap_days + of(parts, "yearday") - (EPOCH + self.middle)
        elapsed = days.float() + of(parts, "second_of_day").float() / 86_400 - self.rest
        return (elapsed * self.scale * present(parts)).unsqueeze(1)


def waves(parts: torch.Tensor, names: tuple[str, ...]) -> torch.Tensor:
    """Sine and cosine of each part by its period: [B, 9] → [B, 2 · names], zeros if missing."""
    columns = [of(parts, name).float() * (2 * math.pi / PERIODS[name]) for name in names]
    angles = torch.stack(columns, 1)
    return torch.cat([angles.sin(), angles.cos()], 1) * present(parts).unsqueeze(1)


class DateEmbed(nn.Module):
    """A learned vector for each value of each part, elapsed time, and the wave of the day; then
    fully connected layers."""

    def __init__(self, metadata: JSON, options: Any) -> None:
        super().__init__()
        self.elapsed = Elapsed(metadata)
        self.tables = nn.ModuleDict(
            {
                name: CategoryEmbed(
                    PERIODS[name] + 1,  # one of a missing date
                    options.embedding_size,
                    options.weights_initializer,
                    dropout=options.dropout,
                )
                for name in EMBEDDED
            }
        )
        vectors = [min(options.embedding_size, PERIODS[name] + 1) for name in EMBEDDED]
        size = 1 + sum(vectors) + 2
        self.fc_stack = fc_stack(size, options, options.num_fc_layers)
        self.output_size = self.fc_stack.output_size

    def forward(self, parts: torch.Tensor) -> torch.Tensor:
        known = present(parts).to(parts.dtype)
        vectors = [
            table(of(parts, name) if name in FROM_ONE else (of(parts, name) + 1) * known)
            for name, table in self.tables.items()
        ]
        hidden = torch.cat([self.elapsed(parts), *vectors, waves(parts, ("second_of_day",))], 1)
        return self.fc_stack(hidden)


class DateWave(nn.Module):
    """Elapsed time, and sine and cosine of each part; then fully connected layers."""

    def __init__(self, metadata: JSON, options: Any) -> None:
        super().__init__()
        self.elapsed = Elapsed(metadata)
        self.fc_stack = fc_stack(1 + 2 * len(PERIODS), options, options.num_fc_layers)
        self.output_size = self.fc_stack.output_size

    def forward(self, parts: torch.Tensor) -> torch.Tensor:
        return self.fc_stack(torch.cat([self.elapsed(parts), waves(parts, tuple(PERIODS))], 1))
