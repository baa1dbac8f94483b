"""Ways in which the sums of branches become the sum of the tree, the same bits in every rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from distcore_core.contracts import Rank
from distcore_torch.sampler import share
from distcore_torch.training.exact.tree import Branch, Total, branches

AllReduce = Callable[[torch.Tensor], None]
"""Sums a tensor over the ranks, in place."""

AllToAll = Callable[[torch.Tensor, Sequence[int], Sequence[int]], torch.Tensor]
"""(numbers, how many go to each rank, how many come from each) → what came, rank after rank; all
1-D."""

AllGather = Callable[[torch.Tensor], torch.Tensor]
"""Every rank's numbers, [n] each, one behind another in rank order: [world · n]."""


class TreeExchange(Protocol):
    """One flat buffer's way to its sum over the parts."""

    def slots(self) -> list[torch.Tensor]:
        """Where this rank lays the sum of each of its branches: [numel] each, not cleared."""
        ...

    def sum(self) -> torch.Tensor:
        """The sum over all parts: [numel], the same bits in every rank; this rank may change it."""
        ...

    def close(self) -> None: ...


class Shares:
    """Which branches each rank lays.

    Args:
        rank: This one, of how many.
        parts: Leaves of the tree.
    """

    def __init__(self, rank: Rank, parts: int) -> None:
        self.world, self.parts = rank.world, parts
        self.of: list[list[Branch]] = [
            branches(share(Rank(index=each, world=rank.world), parts)) for each in range(rank.world)
        ]
        self.all: list[Branch] = [branch for each in self.of for branch in each]
        first = sum(len(each) for each in self.of[: rank.index])
        self.mine = range(first, first + len(self.of[rank.index]))


class OwnTree:
    """One process lays the whole tree: its branch is the sum."""

    def __init__(self, numel: int, dtype: torch.dtype, device: torch.device) -> None:
        self._slot = torch.zeros(numel, dtype=dtype, device=device)

    def slots(self) -> list[torch.Tensor]:
        return [self._slot]

    def sum(self) -> torch.Tensor:
        return self._slot

    def close(self) -> None:
        """Nothing is held."""


class GatheredTree:
    """Every rank gets every branch, through a collective that sums whole numbers.

    Who does not own a branch adds zeros to its bits. It needs nothing but `all_reduce`, and sends
    more than needed: `SlicedTree` is for libraries that can send slices.
    """

    def __init__(
        self,
        shares: Shares,
        numel: int,
        dtype: torch.dtype,
        device: torch.device,
        all_reduce: AllReduce,
    ) -> None:
        words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        self._bits = torch.zeros(len(shares.all), numel, dtype=words, device=device)
        self._values = self._bits.view(dtype)
        self._shares, self._all_reduce = shares, all_reduce
        self._total = Total(shares.parts)

    def slots(self) -> list[torch.Tensor]:
        return [self._values[place] for place in self._shares.mine]

    def sum(self) -> torch.Tensor:
        mine = self._shares.mine
        self._bits[: mine.start].zero_()
        self._bits[mine.stop :].zero_()
        self._all_reduce(self._bits.view(-1))
        return self._total(dict(zip(self._shares.all, self._values, strict=True)))

    def close(self) -> None:
        """Nothing is held."""


class SlicedTree:
    """Each rank finishes one slice of the numbers, and all gather the slices.

    For N ranks, a power of two, 2(N - 1)/N of the bytes travel, as in a ring; a rank whose parts
    are no single branch sends its slices once for each of them.
    """

    def __init__(
        self,
        shares: Shares,
        numel: int,
        dtype: torch.dtype,
        device: torch.device,
        all_to_all: AllToAll,
        all_gather: AllGather,
    ) -> None:
        self._shares, self._numel = shares, numel
        self._all_to_all, self._all_gather = all_to_all, all_gather
        self._slice = -(-numel // shares.world)
        own = len(shares.mine)
        padded = self._slice * shares.world
        self._slots = torch.zeros(own, padded, dtype=dtype, device=device)
        self._sent = [own * self._slice] * shares.world
        self._received = [len(each) * self._slice for each in shares.of]
        self._total = Total(shares.parts)

    def slots(self) -> list[torch.Tensor]:
        return [slot[: self._numel] for slot in self._slots]

    def sum(self) -> torch.Tensor:
        own, world = len(self._slots), self._shares.world
        by_rank = self._slots.view(own, world, self._slice).transpose(0, 1).reshape(-1)
        came = self._all_to_all(by_rank, self._sent, self._received)
        sums = dict(zip(self._shares.all, came.view(-1, self._slice), strict=True))
        return self._all_gather(self._total(sums))[: self._numel]

    def close(self) -> None:
        """Nothing is held."""
