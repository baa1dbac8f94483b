"""Sums along one fixed binary tree, whoever owns which of its leaves.

The leaves are the parts of a global batch. Neighbours are added, then neighbours of these, and so
on; since the tree never changes, the sum has the same bits whether one rank adds all of it or many
ranks add a branch each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from distcore_torch.training.compiled import sums


class Branch(NamedTuple):
    """A whole branch of the tree: leaves [start, start + size); size is a power of two that
    divides start."""

    start: int
    size: int


def branches(parts: range) -> list[Branch]:
    """The fewest whole branches that neighbouring leaves make up: at most 2·log2 of their
    number."""
    found, start = [], parts.start
    while start < parts.stop:
        size = start & -start or 1 << (parts.stop - 1).bit_length()
        while start + size > parts.stop:
            size //= 2
        found.append(Branch(start, size))
        start += size
    return found


class Adder:
    """Adds leaves that come one after another into the sum of a branch, as the tree says.

    It is a binary counter: of a branch of n leaves, log2(n) + 1 tensors are held at most.

    Args:
        numel: Numbers of a leaf.
        like: A tensor of their dtype and device.
    """

    def __init__(self, numel: int, like: torch.Tensor) -> None:
        self._numel, self._like = numel, like
        self._free: list[torch.Tensor] = []
        self._held: list[torch.Tensor] = []

    def leaf(self) -> torch.Tensor:
        """Where the next leaf is to be laid: [numel], not cleared."""
        return self._free.pop() if self._free else self._like.new_empty(self._numel)

    def add(self, leaf: torch.Tensor, index: int) -> None:
        """Take the leaf that was laid, of the place `index` within its branch: 0, 1, 2, …"""
        self._held.append(leaf)
        while index & 1:
            right = self._held.pop()
            self._held[-1] += right
            self._free.append(right)
            index >>= 1

    def take(self, out: torch.Tensor) -> None:
        """Write the branch's sum, once all its leaves were added."""
        (total,) = self._held
        out.copy_(total)
        self._free.append(self._held.pop())


def tree_sum(leaves: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum of a branch whose leaves are all there; leaves are left as they are.

    Args:
        leaves: As many as a power of two, of one shape.
    """
    if len(leaves) == 1:
        return leaves[0]
    level = [leaves[place] + leaves[place + 1] for place in range(0, len(leaves), 2)]
    while len(level) > 1:
        level = [level[place].add_(level[place + 1]) for place in range(0, len(level), 2)]
    return level[0]


def lay_tree_sum(out: torch.Tensor, leaves: torch.Tensor) -> None:
    """Lay the sum of a branch down, zeros without a sign; what `leaves` holds is lost.

    A zero's sign would tell whether a part had no gradient or zeros. Taking it from the
    sum is enough: of all sums only -0.0 + -0.0 is -0.0.

    Args:
        out: [...].
        leaves: As many as a power of two: [leaves, ...].
    """
    count, apart = leaves.shape[0], 1
    if sums is not None and leaves.dtype == torch.float32 and out.is_contiguous():
        if leaves.is_contiguous():
            sums.add_leaves(out.numpy(), leaves.numpy(), count)
            return
        if leaves.dim() > 2 and leaves.mT.is_contiguous():
            turned = torch.empty_like(leaves.mT[0])
            sums.add_leaves(turned.numpy(), leaves.mT.numpy(), count)
            out.copy_(turned.mT)
            return
    while apart < count:
        leaves[:: 2 * apart] += leaves[apart :: 2 * apart]
        apart *= 2
    torch.add(leaves[0], 0.0, out=out)


class Total:
    """Adds the sums of branches that make up the whole tree; what it is given is left as it is.

    Args:
        parts: Leaves of the tree, a power of two.
    """

    def __init__(self, parts: int) -> None:
        self._root = Branch(0, parts)
        self._free: list[torch.Tensor] = []
        self._own: set[int] = set()

    def __call__(self, sums: Mapping[Branch, torch.Tensor]) -> torch.Tensor:
        """The sum, in memory that the next call uses again unless it is one of the tensors given.

        Args:
            sums: By branch; all of one shape, dtype and device.
        """
        found = self._of(self._root, sums)
        if id(found) in self._own:
            self._free.append(found)
        return found

    def _of(self, branch: Branch, sums: Mapping[Branch, torch.Tensor]) -> torch.Tensor:
        given = sums.get(branch)
        if given is not None:
            return given
        half = branch.size // 2
        left = self._of(Branch(branch.start, half), sums)
        right = self._of(Branch(branch.start + half, half), sums)
        if id(left) in self._own:
            out = left
        elif id(right) in self._own:
            out = right
        else:
            out = self._scratch(left)
        if out is left and id(right) in self._own:
            self._free.append(right)
        return torch.add(left, right, out=out)

    def _scratch(self, like: torch.Tensor) -> torch.Tensor:
        if self._free:
            return self._free.pop()
        made = torch.empty_like(like)
        self._own.add(id(made))
        return made
