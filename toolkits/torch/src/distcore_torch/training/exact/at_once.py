"""All parts of a rank in one forward and one backward pass, and their gradients laid into the
slots by part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from distcore_core.contracts import Batch
from distcore_torch.training.exact.by_parts import ByParts, Keys
from distcore_torch.training.exact.cut import Cut, NotByParts
from distcore_torch.training.exact.groups import PartGroup
from distcore_torch.training.exact.sink import Sink
from distcore_torch.training.exact.tree import tree_sum

if TYPE_CHECKING:
    from distcore_torch.training.losses import Losses


class AtOnce:
    """Computes many parts at once.

    Args:
        losses: Of the module.
        groups: Of its parameters and buffers; their slots are written.
        spans: Which of the rank's parts make up each of its branches.
    """

    def __init__(self, losses: Losses, groups: Sequence[PartGroup], spans: Sequence[range]) -> None:
        self._losses, self._groups, self._spans = losses, groups, spans
        self._parameters = {id(each): each for group in groups for each in group.parameters}
        self._home = {key: group for group in groups for key in group.place}

    def __call__(
        self,
        batch: Batch,
        scale: float,
        keys: Keys,
        sums: torch.Tensor,
    ) -> torch.Tensor:
        """Lay the gradients of `scale` times the sum of losses into the slots.

        Args:
            batch: Of the rank's parts; each of them has rows.
            scale: Of the losses.
            keys: Of each part's random numbers.
            sums: float64 [parts, outputs]: the parts' losses are added.

        Returns:
            Each part's loss: [parts].

        Raises:
            NotByParts: If the network does not allow it; slots and buffers are then in no order.
        """
        self._slots = {id(group): group.slots() for group in self._groups}
        self._left: dict[int, list[torch.Tensor]] = {}
        sink = Sink(self._view, self._spans)
        cut = Cut(batch.part_rows)
        own = batch.copy()  # type: ignore[attr-defined]  # distcore_torch's batches have it
        with ByParts(cut, self._parameters, sink, keys, self._changed):
            rows = self._losses.rows(own)
        self._losses.backward([each.sum() for each in rows], scale)
        sink.finish()
        self._finish(sink.written)
        found = [cut.sums(each.detach(), range(len(cut))) for each in rows]
        sums += torch.stack(found, 1)
        return self._losses.total(found, scale)

    # -------------------------------------------------------------- inside

    def _view(self, tensor: torch.Tensor, number: int) -> torch.Tensor:
        group = self._home[id(tensor)]
        return self._slots[id(group)][number][group.place[id(tensor)]]

    def _changed(self, buffer: torch.Tensor, part: int, left: torch.Tensor) -> None:
        """A part has left this in a buffer."""
        if id(buffer) not in self._home:
            raise NotByParts("running statistics that are no buffer of the module")
        changes = self._left.setdefault(id(buffer), [])
        if len(changes) != part:
            raise NotByParts("a buffer is used twice")
        changes.append(left - self._home[id(buffer)].agreed(buffer).origin)

    def _finish(self, written: set[int]) -> None:
        """Lay zeros for what has no gradient, and what the parts changed in the buffers."""
        for number, span in enumerate(self._spans):
            for group in self._groups:
                for parameter in group.parameters:
                    if parameter.grad is not None:
                        raise NotByParts("a gradient came past the parts")
                    if id(parameter) not in written:
                        self._view(parameter, number).zero_()
                for buffer in group.buffers:
                    changes, agreed = self._left.get(id(buffer)), group.agreed(buffer)
                    if changes is None and not torch.equal(buffer, agreed.value):
                        raise NotByParts("a buffer was changed")
                    view = self._view(buffer, number)
                    if changes is None:
                        torch.sub(agreed.value, agreed.origin, out=view)
                    else:
                        torch.add(tree_sum([changes[part] for part in span]), 0.0, out=view)
                for counter in group.counters:
                    # Counted once for all parts; what counts is whether it was counted at all.
                    change = counter - group.agreed(counter).value
                    self._view(counter, number).copy_(change)
        for group in self._groups:
            group.restore()
