"""What was summed over parts of the rows, put together: the same bits in whatever order the parts
come.

Whole numbers add exactly. Floating ones are kept apart until the end and then added as if with
unlimited precision and rounded once, so that neither the number of workers nor the order in which
they finish shows. Rows that a metric keeps are joined in the order of the parts, which is that of
the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from distcore_data.encoding.exactsum import exact_sum

State = Mapping[str, torch.Tensor | Sequence[torch.Tensor]]
"""What one torchmetrics metric holds: {name: tensor, or list of tensors}, on the CPU."""


class MergedState:
    """The states of one metric over parts of the rows, merged as the metric itself says.

    reductions: `metric._reductions`. Memory grows with the parts only for states that are not
        whole numbers."""

    def __init__(self, reductions: Mapping[str, Callable[..., Any] | str | None]) -> None:
        from torchmetrics.utilities import dim_zero_sum

        self._reductions = dict(reductions)
        self._sums = {name for name, reduction in reductions.items() if reduction is dim_zero_sum}
        self._parts: dict[str, list[torch.Tensor]] = {name: [] for name in reductions}
        self._lists: set[str] = set()

    def add(self, state: State) -> None:
        """Add the next part's state."""
        for name, value in state.items():
            parts = self._parts[name]
            if not isinstance(value, torch.Tensor):
                self._lists.add(name)
                parts.extend(value)
            elif parts and name in self._sums and not value.is_floating_point():
                parts[0] = parts[0] + value
            else:
                parts.append(value)

    def into(self, metric: Any) -> None:
        """Give a fresh metric what was added; nothing, if nothing was."""
        for name, parts in self._parts.items():
            if name in self._lists:
                setattr(metric, name, list(parts))
            elif len(parts) == 1:
                setattr(metric, name, parts[0])
            elif name in self._sums and parts:
                setattr(metric, name, torch.from_numpy(exact_sum([part.numpy() for part in parts])))
            elif parts:
                reduction = self._reductions[name]
                stacked = torch.stack(parts)
                setattr(metric, name, reduction(stacked) if callable(reduction) else stacked)
