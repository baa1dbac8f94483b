"""Functions and arguments on their way to another process: loaded there only once it can import
what we can."""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Place:
    """Where this process runs: its folder and what it imports from, as far as another machine
    has them too."""

    folder: str
    path: tuple[str, ...]

    @classmethod
    def here(cls) -> Place:
        """This process's."""
        return cls(os.getcwd(), tuple(os.path.abspath(each) for each in sys.path))

    def enter(self) -> None:
        """Make this process import and find files as that one did. What is not there is passed
        over."""
        sys.path.extend(each for each in self.path if each not in sys.path and os.path.exists(each))
        if os.path.isdir(self.folder):
            os.chdir(self.folder)


def packed(value: Any) -> bytes:
    """The value as bytes; functions and classes by their names, those of `__main__` whole."""
    from ray import cloudpickle

    return bytes(cloudpickle.dumps(value))


def packed_result(value: Any) -> bytes:
    """The value as bytes, in a process that need not import Ray for it: only what has no name
    elsewhere needs that."""
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return packed(value)


def unpacked(data: bytes) -> Any:
    """What `packed` was given."""
    return pickle.loads(data)  # noqa: S301 - what our own processes sent each other, as Ray itself does
