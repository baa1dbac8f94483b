"""A 64-bit fingerprint of tensors: the same on every device, in any order, for any number of
threads.

A tensor's raw bytes, padded with zeros, are n words w[i] of 64 bits (little-endian). With B =
BLOCK, and with K and M odd pseudo-random numbers of 64 bits (SplitMix64 of their index), its own
fingerprint is

    D = sum over i of w[i] · K[i mod B] · M[i div B]      modulo 2^64

and that of many tensors is the sum over them of C + N · D, where C and the odd N are made from the
tensor's name, type and shape by SHA-256. Sums of integers do not depend on order. An odd factor
moves every changed bit to a changed sum, so one flipped bit is always seen; other changes are
overlooked once in 2^64. It finds faults, and is no defence against forgers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from distcore_torch.training.compiled import sums
from distcore_torch.training.raw import in_one_piece, raw_bytes

BLOCK = 1 << 15
"""Words that share a factor M; their factors K, 256 KiB, stay in the processor's cache."""

SMALL = 1 << 12
"""Tensors below as many words are laid side by side first: one product for all of them."""

SMALL_ON_GPU = 1 << 17
"""The same there, where what a kernel costs is its launch."""

MASK = (1 << 64) - 1


def hexadecimal(value: int) -> str:
    """A fingerprint as 16 digits, as ledgers hold it."""
    return f"{value & MASK:016x}"


class Fingerprint:
    """The fingerprint of these tensors, again and again: what is the same each time is made once.

    Args:
        tensors: (name, tensor) in any order. They may change in place; one whose memory is another
            one's from now on (`stands` tells) needs a new object.
    """

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._tensors = list(tensors)
        self._addresses = [each.data_ptr() for _, each in self._tensors]
        groups: dict[torch.device, _Side] = {}
        self._large: list[tuple[str, _Words, int]] = []
        self._found: tuple[Sequence[Any], Sequence[Any]] = [], []
        self._constant = 0
        for name, tensor in self._tensors:
            constant, factor = _of_name(name, tensor)
            self._constant += constant
            each = tensor.detach()
            small = SMALL if each.device.type == "cpu" else SMALL_ON_GPU
            if each.numel() * each.element_size() >= 8 * small and _aligned(each):
                words = _Words(in_one_piece(each).view(torch.int64))
                self._large.append((name, words, factor))
            elif each.numel():
                groups.setdefault(each.device, _Side(each.device)).add(name, each, factor)
        self._sides = list(groups.values())

    @torch.no_grad()
    def total(self) -> int:
        """Of all tensors together. Waits for the device that they are on."""
        now = [factor * words.total() for _, words, factor in self._large]
        self._found = now, self._found[0]
        return (self._constant + sum(now) + sum(side.total() for side in self._sides)) & MASK

    @torch.no_grad()
    def later(self) -> tuple[int, list[torch.Tensor]]:
        """`total` as a number and what their devices are still to compute, each int64 []: the sum
        of all, modulo 2^64. Waits for nothing."""
        now = [words.later() * _signed(factor) for _, words, factor in self._large]
        self._found = now, self._found[0]
        return self._constant, [*now, *(side.later() for side in self._sides)]

    @torch.no_grad()
    def each(self) -> dict[str, int]:
        """Of every tensor by itself: {name: fingerprint}; `total` is their sum modulo 2^64."""
        found = {}
        for name, tensor in self._tensors:
            constant, factor = _of_name(name, tensor)
            own = _own(_padded(tensor.detach())) if tensor.numel() else 0
            found[name] = (constant + factor * own) & MASK
        return found

    def changed(self) -> list[str]:
        """What is another one than at the `total` before the last: names of tensors.

        If it is a single bit, and of a small tensor, its place is told too: `w (bit 31 of number
        7)`."""
        now, before = self._found
        names = [
            name
            for (name, _, _), one, other in zip(self._large, now, before, strict=False)
            if one != other
        ]
        return [*names, *(each for side in self._sides for each in side.changed())]

    def __len__(self) -> int:
        return len(self._tensors)

    def stands(self) -> bool:
        """Whether every tensor still has the memory it had."""
        return self._addresses == [each.data_ptr() for _, each in self._tensors]


class _Side:
    """Small tensors of one device, side by side in a buffer of whole words: this time's and the
    last time's."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._members: list[tuple[str, torch.Tensor, int]] = []
        self._in_order = True  # else no view has the bytes of all of them in order
        # A GPU copies byte by byte, or four at a time.
        self._unit = torch.int32
        self._parts: list[torch.Tensor] = []
        self._keys = torch.zeros(0, dtype=torch.int64)
        self._now = self._before = torch.zeros(0, dtype=torch.uint8)

    def add(self, name: str, tensor: torch.Tensor, factor: int) -> None:
        self._members.append((name, tensor, factor))
        self._in_order &= tensor.is_contiguous()
        if tensor.element_size() not in (4, 8):
            self._unit = torch.uint8

    def total(self) -> int:
        return int(self.later())

    def later(self) -> torch.Tensor:
        if not self._in_order:
            parts = [
                _Words(_padded(each)).later() * _signed(factor) for _, each, factor in self._members
            ]
            return torch.stack(parts).sum()
        if not self._parts:
            self._lay_out()
        self._now, self._before = self._before, self._now
        torch.cat(self._parts, out=self._now.view(self._unit))
        return _dot(self._now.view(torch.int64), self._keys)

    def changed(self) -> list[str]:
        found, start = [], 0
        if not self._parts:
            return []
        differ = (self._now ^ self._before).cpu()
        for name, tensor, _ in self._members:
            size = tensor.element_size()
            here = differ[start : start + tensor.numel() * size]
            places = here.nonzero().flatten().tolist()
            if places:
                value = int(here[places[0]])
                one = len(places) == 1 and value & (value - 1) == 0
                bit = 8 * (places[0] % size) + value.bit_length() - 1
                found.append(f"{name} (bit {bit} of number {places[0] // size})" if one else name)
            start += 8 * _words(tensor.numel() * size)
        return found

    def _lay_out(self) -> None:
        keys = []
        for _, tensor, factor in self._members:
            raw = in_one_piece(tensor).view(self._unit)
            size = tensor.numel() * tensor.element_size()
            self._parts.append(raw)
            if missing := -size % 8 // self._unit.itemsize:
                self._parts.append(raw.new_zeros(missing))
            keys.append(_of_words(_words(size), self._device) * _signed(factor))
        self._keys = torch.cat(keys)
        self._now = torch.zeros(8 * self._keys.numel(), dtype=torch.uint8, device=self._device)
        self._before = self._now.clone()


class _Words:
    """D of int64 [n] again and again: whole blocks, and what is left of one."""

    def __init__(self, words: torch.Tensor) -> None:
        whole, rest = divmod(words.numel(), BLOCK)
        keys, factors = _in_block(words.device), _of_blocks(whole + 1, words.device)
        on_cpu = words.device.type == "cpu"
        self._numpy = tuple(each.numpy() for each in (words, keys, factors)) if on_cpu else None
        self._blocks = words[: whole * BLOCK].view(whole, BLOCK)
        self._rest = words[whole * BLOCK :]
        self._keys, self._rest_keys = keys, keys[:rest]
        self._factors, self._rest_factor = factors[:whole], int(factors[whole])

    def total(self) -> int:
        if sums is not None and self._numpy is not None:
            return sums.add_words(*self._numpy)
        return int(self.later()) & MASK

    def later(self) -> torch.Tensor:
        """Modulo 2^64, as int64 []."""
        found = torch.zeros((), dtype=torch.int64, device=self._keys.device)
        if len(self._blocks):
            # torch multiplies matrices of integers on CPUs alone.
            blocks, keys = self._blocks, self._keys
            on_cpu = self._numpy is not None
            each = torch.mv(blocks, keys) if on_cpu else (blocks * keys).sum(1)
            found = found + _dot(each, self._factors)
        if len(self._rest):
            found = found + _dot(self._rest, self._rest_keys) * self._rest_factor
        return found


def _own(words: torch.Tensor) -> int:
    """D of int64 [n]."""
    return _Words(words).total()


def _dot(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.dot(one, other) if one.device.type == "cpu" else (one * other).sum()


def _padded(tensor: torch.Tensor) -> torch.Tensor:
    """The raw bytes as int64, without a copy if they are whole words in one piece."""
    if _aligned(tensor):
        return in_one_piece(tensor).view(torch.int64)
    raw = raw_bytes(tensor)
    padded = torch.zeros(8 * _words(raw.numel()), dtype=torch.uint8, device=raw.device)
    padded[: raw.numel()] = raw
    return padded.view(torch.int64)


def _aligned(tensor: torch.Tensor) -> bool:
    size = tensor.element_size()
    return tensor.is_contiguous() and not (
        tensor.numel() * size % 8 or tensor.storage_offset() * size % 8
    )


def _words(length: int) -> int:
    return -(-length // 8)


def _of_name(name: str, tensor: torch.Tensor) -> tuple[int, int]:
    """(C, N) of a tensor."""
    said = f"{name} {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
    raw = hashlib.sha256(said.encode()).digest()
    return int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:16], "little") | 1


# ------------------------------------------------------------------ the factors


@cache
def _odds(first: int, count: int, device: torch.device) -> torch.Tensor:
    """The odd factors of `count` indices from `first` on: int64 [count].

    SplitMix64 (Steele et al., 2014) of the index, with its lowest bit set."""
    value = np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    odd = (value ^ (value >> np.uint64(31))) | np.uint64(1)
    return torch.from_numpy(odd.view(np.int64)).to(device)


def _in_block(device: torch.device) -> torch.Tensor:
    """K[0], …, K[B - 1]."""
    return _odds(0, BLOCK, device)


def _of_blocks(count: int, device: torch.device) -> torch.Tensor:
    """M[0], …, M[count - 1]."""
    return _odds(BLOCK, count, device)


def _of_words(count: int, device: torch.device) -> torch.Tensor:
    """K · M of `count` words."""
    blocks = -(-count // BLOCK)
    keys = _in_block(device)[:count]  # of few words, for there may be thousands of small tensors
    return (_of_blocks(blocks, device)[:, None] * keys).reshape(-1)[:count]


def _signed(value: int) -> int:
    """The same 64 bits as torch's int64 has them."""
    return value - (1 << 64) if value >> 63 else value
