"""Processes that a launcher (torchrun) started: which of them this one is."""

from __future__ import annotations

import os


def is_other_rank() -> bool:
    """Whether a launcher (torchrun) started this process as a rank other than 0."""
    if "RANK" not in os.environ:  # torch need not be imported to know
        return False
    from distcore_torch.training.rank_process import launched_rank

    rank = launched_rank()
    return rank is not None and rank.index > 0
