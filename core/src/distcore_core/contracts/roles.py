"""The roles that plugins play, each as one object: its group, its factory, its name for people,
its type."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from distcore_core.contracts.backends import Backend
from distcore_core.contracts.caching import CacheFormat, Processor
from distcore_core.contracts.features import Feature
from distcore_core.contracts.loading import Loader
from distcore_core.contracts.models import Model
from distcore_core.contracts.search import Executor
from distcore_core.contracts.training import Trainer

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

__all__ = [
    "BACKEND",
    "CACHE_FORMAT",
    "COMMAND",
    "EXECUTOR",
    "EXTENSION",
    "FEATURE",
    "LOADER",
    "MEMBER_HOOK",
    "MODEL",
    "PROCESSOR",
    "ROLES",
    "SECTION",
    "TRAINER",
    "UPGRADE",
    "Command",
    "Role",
]

R = TypeVar("R")


@runtime_checkable
class Command(Protocol):
    """A command of the command line. help: one line."""

    help: str

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes.

        Args:
            parser: Of this command alone; `--help` and the command line's own are there.
        """
        ...

    def run(self, arguments: Namespace) -> int:
        """Do it.

        Args:
            arguments: As the parser gave them.

        Returns:
            The exit code.

        Raises:
            DistcoreError: Told in a line; the exit code is then the error's own.
        """
        ...


MEMBER_HOOK = "distcore_make_member"
"""The hook that makes a member of every role that core does not know."""

_declared: dict[str, Role[Any]] = {}


@dataclass(frozen=True)
class Role(Generic[R]):
    """What a plugin can be: a role of core's (`ROLES`), or one that a toolkit or a plugin declares.

    Args:
        kind: Its entry-point group is `distcore.<kind>`. A plugin's own begin with its name:
            `tabular.encoders`.
        hook: The hook that makes one; `MEMBER_HOOK` unless the role is one of core's.
        singular: One of it, for people.
        type: What the factory gives.
        section: Its key in the config's `backend` section, if a backend names a default for it.
        since: The API version whose plugins of this role are the oldest that work. A break of
            this role alone raises it, and API_VERSION: plugins of other roles go on working.
    """

    kind: str
    hook: str
    singular: str
    type: type[R]
    section: str | None = None
    since: tuple[int, int] = (1, 0)

    def __post_init__(self) -> None:
        _declared[self.kind] = self

    def lacks(self, made: object) -> list[str]:
        """Names of the members of the role that an object has not."""
        return sorted(each for each in _members(self.type) if not hasattr(made, each))  # type: ignore[arg-type]


def singular(kind: str) -> str:
    """One of a kind, for people; of a role that nothing here has declared yet, its kind."""
    return _declared[kind].singular if kind in _declared else kind


def since(kind: str) -> tuple[int, int]:
    """`Role.since` of a kind; of a role that nothing here has declared yet, what most have."""
    return _declared[kind].since if kind in _declared else Role.since


@functools.cache
def _members(protocol: type) -> set[str]:
    """What a Protocol asks for; of any other type nothing."""
    if not getattr(protocol, "_is_protocol", False):
        return set()
    found: set[str] = set()
    for each in protocol.__mro__[:-1]:
        if getattr(each, "_is_protocol", False) and each is not Protocol:
            found |= {*vars(each).get("__annotations__", {}), *vars(each)}
    return {name for name in found if not name.startswith("_")}


BACKEND = Role("backends", "distcore_make_backend", "backend", Backend)  # type: ignore[type-abstract]
PROCESSOR = Role("processors", "distcore_make_processor", "processor", Processor, "processor")  # type: ignore[type-abstract]
CACHE_FORMAT = Role("caches", "distcore_make_cache", "cache format", CacheFormat)  # type: ignore[type-abstract]
LOADER = Role("loaders", "distcore_make_loader", "loader", Loader, "loader")  # type: ignore[type-abstract]
FEATURE = Role("features", "distcore_make_feature", "feature", Feature)  # type: ignore[type-abstract]
MODEL = Role("models", "distcore_make_model", "model", Model)  # type: ignore[type-abstract]
TRAINER = Role("trainers", "distcore_make_trainer", "trainer", Trainer, "trainer")  # type: ignore[type-abstract]
EXECUTOR = Role("executors", "distcore_make_executor", "executor", Executor)  # type: ignore[type-abstract]
EXTENSION = Role("extensions", "distcore_make_extension", "extension", object)
COMMAND = Role("commands", "distcore_make_command", "command", Command)  # type: ignore[type-abstract]
SECTION = Role("sections", "distcore_config_section", "config section", type)
"""What it gives is the model of the section's options."""
UPGRADE = Role("upgrades", "distcore_upgrade_config", "config upgrade", object)
"""Not made, but asked: what older spellings of a config are today."""

ROLES: Mapping[str, Role[Any]] = MappingProxyType(_declared.copy())
"""{kind: role}: every role of core's."""
