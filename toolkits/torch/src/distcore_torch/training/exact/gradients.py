"""Gradients that are the same bits for every number of workers: computed part by part, added along
one tree.

A part's rows run through forward and backward pass by themselves, with random numbers of their own,
so nothing that is computed for a part knows how many parts its rank has. The sums over parts are
the tree's. What is row by row may run over all of a rank's parts at once if that gives the same
bits, which is tried for each cut of a batch when it first comes: the number of ranks decides how
fast it is, and never what comes of it.
"""

from __future__ import annotations

import logging
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import torch

from distcore_core.contracts import Batch
from distcore_core.errors import TrainingError, UserError
from distcore_torch.products import by_weight_alone
from distcore_torch.sampler import share
from distcore_torch.training.determinism import drawing
from distcore_torch.training.exact import kernels
from distcore_torch.training.exact.at_once import AtOnce
from distcore_torch.training.exact.by_parts import Keys
from distcore_torch.training.exact.cut import NotByParts
from distcore_torch.training.exact.groups import PartGroup, part_groups
from distcore_torch.training.exact.tree import branches
from distcore_torch.training.gradients import slices
from distcore_torch.training.plan import refuse_without_parts
from distcore_torch.training.random_numbers import random_key

if TYPE_CHECKING:
    from distcore_torch.train_options import TrainerOptions
    from distcore_torch.training.losses import Losses
    from distcore_torch.training.strategy import Strategy

FEWEST_ROWS = 4
"""Parts go at once only if each has as many: kernels treat fewer unlike many."""

GIVE_UP = 4
"""Cuts of a batch for which all rows at once gave other bits, before it is tried no more."""


class Way(Enum):
    """How a rank's parts go through the network, with the same bits."""

    AT_ONCE = "all at once, but for what sums over a part's rows"
    ONE_BY_ONE = "one after another"


log = logging.getLogger("distcore")


class PartGradients:
    """`Gradients` of the parts of a global batch.

    Args:
        module: On the CPU, prepared by the strategy.
        losses: Of the module.
        options: Of the `trainer` section: `parts`.
        strategy: Of this rank, set up.
        micro_rows: Most rows of one forward pass; a larger part is accumulated in pieces.
        seed: Of the run; random numbers of a step are keyed by it, the step and the part.

    Attributes:
        ways: {rows of each part: how they go}, of the cuts that were met and may go at once.

    Raises:
        ConfigError: There are more ranks than parts.
        UserError: The device is no CPU.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        losses: Losses,
        options: TrainerOptions,
        strategy: Strategy,
        *,
        micro_rows: int,
        seed: int,
    ) -> None:
        rank = strategy.rank
        refuse_without_parts(options, rank.world)
        if strategy.device.type != "cpu":
            raise UserError(
                f"trainer.exact holds on CPUs, and this rank has {strategy.device}. "
                "Set backend.trainer.use_gpu to false, or trainer.exact to false."
            )
        self._losses, self._strategy, self._micro_rows = losses, strategy, micro_rows
        self._parts, self._seed = options.parts, seed
        self._mine = share(rank, options.parts)
        self._branches = branches(self._mine)
        self.sums = torch.zeros(len(self._mine), losses.count, dtype=torch.float64)
        self._loss = torch.zeros(len(self._mine), dtype=torch.float64)
        self._groups: list[PartGroup] = part_groups(module)
        for group in self._groups:
            group.prepare(strategy.tree_exchange(group.numel, group.dtype, options.parts))
        first = self._mine.start
        spans = [
            range(each.start - first, each.start - first + each.size) for each in self._branches
        ]
        kernels.forget()
        self._together = AtOnce(losses, self._groups, spans)
        self.ways: dict[tuple[int, ...], Way] = {}

    def backward(
        self, batch: Batch, scale: float, step: int, *, counts: bool = True
    ) -> torch.Tensor | float:
        self._check(batch)
        sums = self.sums if counts else torch.zeros_like(self.sums)
        keys = partial(self._keys, step)
        sizes = tuple(batch.part_rows)
        way = self.ways.get(sizes)
        if way is None and self._may_go_at_once(sizes):
            self.ways[sizes] = self._tried(batch, scale, keys, sums)
        elif way is not Way.AT_ONCE or not self._at_once(batch, scale, keys, sums):
            self._one_by_one(batch, scale, keys, sums)
        return self._loss.sum()

    def reduce(self, stop: bool) -> bool:
        asked, several = stop, self._strategy.rank.world > 1
        for group in self._groups:
            for slot in group.exchange.slots() if several else ():
                slot[-1] = float(stop)
            total = group.spread(self._parts)
            asked |= several and total[-1].item() > 0
        return asked

    def global_loss(self) -> torch.Tensor:
        ranks = self._strategy.gather(self._loss.tolist())
        return torch.tensor(sum(part for rank in ranks for part in rank), dtype=torch.float64)

    def settle(self) -> None:
        for group in self._groups:
            group.settle()

    def close(self) -> None:
        for group in self._groups:
            group.close()

    # -------------------------------------------------------------- inside

    def _keys(self, step: int) -> list[int]:
        """Of the parts' random numbers."""
        return [random_key(self._seed, step, part) for part in self._mine]

    def _check(self, batch: Batch) -> None:
        """Raise TrainingError if the batch is not cut into this rank's parts."""
        sizes = list(batch.part_rows)
        if len(sizes) != len(self._mine) or sum(sizes) != batch.rows:
            raise TrainingError(
                f"trainer.exact needs a loader that cuts batches into parts; this one gave {sizes} "
                f"for {len(self._mine)} parts of {batch.rows} rows. Choose another backend.loader, "
                "or set trainer.exact to false."
            )

    def _may_go_at_once(self, sizes: tuple[int, ...]) -> bool:
        """Whether it is worth trying."""
        enough = len(sizes) > 1 and min(sizes) >= FEWEST_ROWS and sum(sizes) <= self._micro_rows
        return enough and list(self.ways.values()).count(Way.ONE_BY_ONE) < GIVE_UP

    def _tried(self, batch: Batch, scale: float, keys: Keys, sums: torch.Tensor) -> Way:
        """Go one by one, which is what counts, and then at once, to see whether that has the same
        bits."""
        expected = torch.zeros_like(sums)
        self._one_by_one(batch, scale, keys, expected)
        sums += expected
        laid = [[slot.clone() for slot in group.exchange.slots()] for group in self._groups]
        found = self._pass(batch, scale, keys)
        same = found is not None and torch.equal(found[1], expected) and self._equal(laid)
        self._put_back()
        for group, slots in zip(self._groups, laid, strict=True):
            for slot, kept in zip(group.exchange.slots(), slots, strict=True):
                slot.copy_(kept)
        return Way.AT_ONCE if same else Way.ONE_BY_ONE

    def _at_once(self, batch: Batch, scale: float, keys: Keys, sums: torch.Tensor) -> bool:
        """Go at once; False: the network no longer allows it, and nothing is changed."""
        found = self._pass(batch, scale, keys)
        if found is None:
            self._put_back()
            self.ways[tuple(batch.part_rows)] = Way.ONE_BY_ONE
            return False
        self._loss, losses = found
        sums += losses
        return True

    def _pass(
        self, batch: Batch, scale: float, keys: Keys
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Lay what all parts at once give into the slots: each part's loss, and their sums of
        losses. None: not so; slots and buffers are then in no order."""
        losses = torch.zeros_like(self.sums)
        with drawing:
            numbers = torch.default_generator.get_state()
            try:
                loss = self._together(batch, scale, keys, losses)
            except (NotByParts, RuntimeError, ValueError, TypeError, IndexError) as error:
                # If it is a fault of the network, its parts have told it, or will.
                log.debug("Exact training goes part by part: %s.", error)
                return None
            # Parts draw from generators of their own; who draws from torch's goes part by part.
            drawn = not torch.equal(numbers, torch.default_generator.get_state())
        return None if drawn else (loss, losses)

    def _put_back(self) -> None:
        """Make parameters and buffers as they were before a pass."""
        self._losses.put_buffers_back()
        for group in self._groups:
            group.restore()

    def _equal(self, laid: list[list[torch.Tensor]]) -> bool:
        """Whether the slots hold these numbers."""
        return all(
            # Counters and the stop flag, at the end, are laid in another way.
            torch.equal(mine[: group.exactly], other[: group.exactly])
            for group, slots in zip(self._groups, laid, strict=True)
            for mine, other in zip(slots, group.exchange.slots(), strict=True)
        )

    def _one_by_one(self, batch: Batch, scale: float, keys: Keys, sums: torch.Tensor) -> None:
        """Lay the sums of the branches into the slots, one part after another."""
        drawn = keys()
        parts = iter(batch.parts())  # type: ignore[attr-defined]  # distcore_torch's batches have them
        loss, place = torch.zeros_like(self._loss), 0
        for number, branch in enumerate(self._branches):
            slots = [group.exchange.slots()[number] for group in self._groups]
            for index in range(branch.size):
                part = next(parts)
                with drawing:
                    torch.default_generator.manual_seed(drawn[place])
                    loss[place] = self._part(part, scale, sums[place])
                self._lay(slots, branch.size, index)
                place += 1
            for group, slot in zip(self._groups, slots, strict=True):
                if branch.size > 1:
                    group.adder.take(slot)
                slot.add_(0.0)  # as `lay_tree_sum` does
        self._loss = loss

    def _part(self, part: Batch, scale: float, sums: torch.Tensor) -> torch.Tensor | float:
        """Forward and backward pass of one part; adds its sums of losses, and returns its loss."""
        loss: torch.Tensor | float = 0.0
        if not part.rows:
            return loss
        whole = part.rows <= self._micro_rows
        for piece in (part,) if whole else slices(part, self._micro_rows):
            with by_weight_alone():
                found = [rows.sum() for rows in self._losses.rows(piece)]
            loss = loss + self._losses.backward(found, scale)
            sums += (found[0] if len(found) == 1 else torch.stack(found)).detach()
        return loss

    def _lay(self, slots: list[torch.Tensor], size: int, index: int) -> None:
        """Add what the part's pass has left to the sum of its branch."""
        for group, slot in zip(self._groups, slots, strict=True):
            leaf = slot if size == 1 else group.adder.leaf()
            group.collect(leaf)
            if size > 1:
                group.adder.add(leaf, index)
