"""Functions and arguments on their way to another process: loaded there only once it can import
what we can."""

from __future__ import annotations

import os
import pickle
import sys
import sysconfig
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any


@dataclass(frozen=True)
class Place:
    """Where this process runs: its folder and what it imports from, as far as another machine
    has them too. first: the user's folders of `path` that stand before the standard library."""

    folder: str
    path: tuple[str, ...]
    first: tuple[str, ...]

    @classmethod
    def here(cls) -> Place:
        """This process's."""
        path = tuple(os.path.abspath(each) for each in sys.path)
        library = os.path.realpath(sysconfig.get_path("stdlib"))
        before = takewhile(lambda each: os.path.realpath(each) != library, path)
        packages = "/site-packages", "/dist-packages"
        first = tuple(each for each in before if not any(name in each for name in packages))
        return cls(os.getcwd(), path, first)

    def enter(self) -> None:
        """Make this process import and find files as that one did: the user's modules are that
        one's, what is installed is this one's if it has it. What is not there is passed over."""
        there = [each for each in self.path if os.path.exists(each)]
        first = [each for each in there if each in self.first]
        sys.path[:] = dict.fromkeys([*first, *sys.path, *there])
        if os.path.isdir(self.folder):
            os.chdir(self.folder)


@dataclass(frozen=True)
class Sealed:
    """What `packed` gave, for whoever writes down what it is handed: credentials are in it, and Ray
    Train's state tracking keeps the text of each entry of a loop's config."""

    content: bytes = field(repr=False)


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
