"""Which GPUs a command sees (`--gpus`): the environment is the process's, and calls in several
threads share it."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distcore_core.contracts import Backend
from distcore_core.errors import UserError

VISIBLE = "CUDA_VISIBLE_DEVICES"

_gpus_lock = threading.Lock()
_gpu_blocks: list[tuple[int, str]] = []  # of each that is open: its thread, and the GPUs it names
_gpus_before: str | None = None


def _in_a_fork() -> None:
    """Of the parent's threads a child has the one that forked, and no other is at work in it. What
    they hide stays hidden from it."""
    global _gpus_lock
    _gpus_lock = threading.Lock()
    _gpu_blocks[:] = [each for each in _gpu_blocks if each[0] == threading.get_ident()]


os.register_at_fork(after_in_child=_in_a_fork)


@contextmanager
def limited_gpus(gpus: Any) -> Iterator[None]:
    """Hide all GPUs but the named ones from this process and its children until the block ends, in
    whichever thread the last such block does; before torch looks.

    Raises UserError if another thread's block hides others: the environment is the process's."""
    global _gpus_before
    if gpus is None:
        yield
        return
    block = threading.get_ident(), _named_gpus(gpus)
    with _gpus_lock:
        if any(thread != block[0] and named != block[1] for thread, named in _gpu_blocks):
            raise UserError(
                f"--gpus {block[1] or '-1'}: this process is at work with others. Give all calls "
                "that run beside one another the same, or each a process of its own."
            )
        if not _gpu_blocks:
            _gpus_before = os.environ.get(VISIBLE)
        _gpu_blocks.append(block)
        os.environ[VISIBLE] = block[1]
    try:
        yield
    finally:
        with _gpus_lock:
            _gpu_blocks[:] = [each for each in _gpu_blocks if each is not block]
            before = _gpu_blocks[-1][1] if _gpu_blocks else _gpus_before
            if before is None:
                os.environ.pop(VISIBLE, None)
            else:
                os.environ[VISIBLE] = before


def _named_gpus(gpus: Any) -> str:
    text = ",".join(map(str, gpus)) if isinstance(gpus, list | tuple) else str(gpus)
    if not all(re.fullmatch(r"\s*-?[0-9]+\s*", part) for part in text.split(",")):
        raise UserError(
            f"--gpus {text!r} is not a list of GPU numbers. Give numbers such as 0 or 0,1, or -1 "
            "for none."
        )
    return "" if text.strip() == "-1" else text


def check_gpus(gpus: Any, backend: Backend) -> None:
    """Raise UserError if GPUs were named (`limited_gpus`) that the backend does not see."""
    named = [each for each in os.environ[VISIBLE].split(",") if each] if gpus is not None else []
    seen = backend.resources().gpus if named else 0
    if seen < len(named):
        can = f"only {seen} of these {len(named)} can" if seen else "no GPU can"
        raise UserError(
            f"--gpus {','.join(named)}: {can} be used here. "
            "See `distcore doctor`; give -1 for none, or leave it out for all there are."
        )
