"""scipy.signal, imported when somebody asks for what it has.

torchmetrics imports it wherever scipy is installed, a second of each command's processor time, and
all that it wants is to put one name there for an audio package, `hamming`. So before torchmetrics
is imported a module takes scipy.signal's place that has this name and gets every other from
scipy.signal itself, which it imports first; from then on that has its place again.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAME = "scipy.signal"

_lock = threading.Lock()


class LazySignal(ModuleType):
    """Stands for scipy.signal."""

    def __init__(self) -> None:
        super().__init__(NAME)
        # Who asks whether there is such a module gets an answer that is no error.
        self.__spec__ = ModuleSpec(NAME, None, is_package=True)

    @staticmethod
    def hamming(*arguments: Any, **named: Any) -> Any:
        return imported().windows.hamming(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        # `inspect` and others ask all modules for such names (`__file__`): nobody uses this one.
        if name.startswith("__") and name not in ("__path__", "__all__"):
            raise AttributeError(f"module {NAME!r} has no attribute {name!r} before it is used")
        return getattr(imported(), name)


def wait_for_use() -> None:
    """Put a `LazySignal` into scipy.signal's place, unless that or torchmetrics was imported."""
    if "torchmetrics" not in sys.modules and importlib.util.find_spec("scipy"):
        sys.modules.setdefault(NAME, LazySignal())


def imported() -> ModuleType:
    """scipy.signal, imported if it was not, with the name that torchmetrics wants there."""
    with _lock:  # not while it is imported: that takes locks of Python's own
        if isinstance(sys.modules.get(NAME), LazySignal):
            del sys.modules[NAME]
    module: Any = importlib.import_module(NAME)
    if not hasattr(module, "hamming"):
        module.hamming = module.windows.hamming
    return module
