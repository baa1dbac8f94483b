"""Trainings that go slowly from some step on until a test lets go: whatever it does to a run under
way meets one that still runs, on a machine of any speed."""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

FOLDER = "DISTCORE_TESTING_BRAKE"
"""The variable that tells the processes of a run where the brake lies."""

PAUSE = 0.25
"""Seconds that a step takes at least; each is progress, so nobody is taken for one that hangs."""

STEP = "distcore_torch.training.step"
"""The module of the `Stepper`."""


class Brake:
    """Slows what trains in processes that were started with its `environment`, each rank alike.

    Args:
        folder: A folder of its own, which need not be there.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "sitecustomize.py").write_text(
            "from distcore_testing.brake import install\n\ninstall()\n"
        )
        self.folder = folder

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the processes of a run; their children hand them on."""
        paths = filter(None, [str(self.folder), os.environ.get("PYTHONPATH")])
        return {FOLDER: str(self.folder), "PYTHONPATH": os.pathsep.join(paths)}

    def apply(self, after: int, spared: int = 0) -> None:
        """Slow every training once it has made `after` steps since it began or was gone on with.

        spared: so many trainings that come that far are not slowed.
        """
        for number in range(spared):
            (self.folder / f"spared-{number}").touch()
        _pedal(self.folder).with_suffix(".tmp").write_text(str(after))
        _pedal(self.folder).with_suffix(".tmp").rename(_pedal(self.folder))

    def release(self) -> None:
        """Let all of them go on as fast as they can."""
        _pedal(self.folder).unlink(missing_ok=True)


def install() -> None:
    """In a process of the run: slow its steps while the brake is applied."""
    sys.meta_path.insert(0, _Finder(Path(os.environ[FOLDER])))


def _pedal(folder: Path) -> Path:
    """Is there while the brake is applied, and holds after how many steps."""
    return folder / "after"


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module of steps, once. torch need not be imported before it is wanted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != STEP:
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.loader is not None
        found.loader = _Loader(found.loader, self.folder)
        return found


class _Loader(importlib.abc.Loader):
    """Executes the module as its own loader does, and wraps its steps."""

    def __init__(self, loader: importlib.abc.Loader, folder: Path) -> None:
        self.loader, self.folder = loader, folder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        stepper: Any = vars(module)["Stepper"]
        stepper.step = _slowed(stepper.step, self.folder)


def _slowed(step: Callable[..., bool], folder: Path) -> Callable[..., bool]:
    made: WeakKeyDictionary[object, float] = WeakKeyDictionary()

    def slowed(self: object, *given: object) -> bool:
        made[self] = made.get(self, 0) + 1
        if made[self] > _after(folder) and _takes_a_spared_place(folder):
            made[self] = float("-inf")
        end = time.monotonic() + PAUSE
        while made[self] > _after(folder) and time.monotonic() < end:
            time.sleep(0.01)
        return step(self, *given)

    return slowed


def _after(folder: Path) -> float:
    """How many steps are not slowed; infinity once the brake is released."""
    try:
        return int(_pedal(folder).read_text())
    except FileNotFoundError:
        return float("inf")


def _takes_a_spared_place(folder: Path) -> bool:
    for each in folder.glob("spared-*"):
        try:
            each.unlink()
        except FileNotFoundError:  # another one's
            continue
        return True
    return False
