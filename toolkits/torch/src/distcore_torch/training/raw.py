"""The numbers of a tensor as they lie in memory, for whatever hashes, writes or sends bytes."""

from __future__ import annotations

import torch


def in_one_piece(tensor: torch.Tensor) -> torch.Tensor:
    """Its numbers in order, [n], which can be viewed as any type; a copy only where they lie
    apart."""
    flat = tensor.detach().contiguous().reshape(-1)
    # One number, or none, counts as contiguous with any stride, and is then no view of bytes.
    return flat.as_strided((flat.numel(),), (1,)) if flat.numel() < 2 else flat


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """`in_one_piece` as uint8 [bytes]."""
    return in_one_piece(tensor).view(torch.uint8)


def shows_a_number_twice(tensor: torch.Tensor) -> bool:
    """Whether it is a view (expand) that torch copies nothing into."""
    return tensor.numel() > 0 and any(
        size > 1 and not step for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    )
