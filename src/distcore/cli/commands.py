"""The commands there are: our own, and those that plugins offer."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from distcore.cli import command_flags

if TYPE_CHECKING:
    from distcore_core.contracts import Command


class _Own:
    """A command of our own, whose body in `distcore.cli.<module>` is imported when it is run."""

    def __init__(
        self, help: str, fill: Callable[[argparse.ArgumentParser], None], module: str, function: str
    ) -> None:
        self.help, self.add_arguments = help, fill
        self._module, self._function = module, function

    def run(self, arguments: argparse.Namespace) -> int:
        from importlib import import_module

        return getattr(import_module(f"distcore.cli.{self._module}"), self._function)(arguments)


COMMANDS: Mapping[str, Command] = {
    "experiment": _Own(
        "train, then evaluate and predict the test split",
        command_flags.train,
        "train",
        "experiment",
    ),
    "train": _Own("preprocess and fit a model", command_flags.train, "train", "train"),
    "preprocess": _Own("build the cache and stop", command_flags.preprocess, "train", "preprocess"),
    "evaluate": _Own(
        "metrics of a model on a dataset", command_flags.evaluate, "train", "evaluate"
    ),
    "predict": _Own(
        "predictions of a model on a dataset", command_flags.predict, "train", "predict"
    ),
    "plan": _Own(
        "say what would run, where, through which plugins and why",
        command_flags.plan,
        "inspect",
        "plan",
    ),
    "diff": _Own("say why two runs differ", command_flags.diff, "ledger", "diff"),
    "verify": _Own(
        "check a run's files, and replay it here", command_flags.verify, "ledger", "verify"
    ),
    "init": _Own(
        "write a commented config by looking at data", command_flags.init, "inspect", "init"
    ),
    "plugins": _Own(
        "list the installed plugins and their state", command_flags.plugins, "inspect", "plugins"
    ),
    "doctor": _Own(
        "check the machine and each plugin's parts", command_flags.doctor, "inspect", "doctor"
    ),
    "completion": _Own(
        "print a shell's completion script", command_flags.completion, "completion", "completion"
    ),
    "schema": _Own(
        "print the JSON Schema of what is installed", command_flags.schema, "inspect", "schema"
    ),
}
ALIASES = {"evaluate": ["test"]}

BY_PLUGINS: Mapping[str, str] = {
    "hyperopt": "search the space of the hyperopt section",
    "runs": "list the runs of a folder: metrics, state, duration",
    "compare": "config differences, curves and metrics of several runs",
    "report": "write report.html from an experiment's folder",
    "cache": "list, verify and prune the caches of a folder or bucket",
    "new-plugin": "make the package of a plugin: code, tests, CI, README",
}
"""What `--help` says of our own commands in the group `distcore.commands`; of others it names who
offers them (`of_others`), because asking them would import them."""


class Offered(NamedTuple):
    """A command that a plugin offers."""

    name: str
    command: Command


def offered_commands() -> list[Offered]:
    """Every command that an installed plugin offers; one that cannot be made is left out."""
    from distcore_core.contracts import COMMAND
    from distcore_core.errors import PluginError
    from distcore_core.registry.manager import Plugins

    plugins, found = Plugins(), []
    for name in plugins.names(COMMAND.kind):
        try:
            found.append(Offered(name, plugins.make(COMMAND, name)))
        except PluginError:
            continue
    return found


def asks_for_all(words: Sequence[str]) -> bool:
    """Whether every command is to be told of."""
    return not words or words[0] in ("-h", "--help")


def is_own(words: Sequence[str]) -> bool:
    """Whether the words name no command, or one of our own; any other is a plugin's."""
    first = words[0] if words else "-"
    return (
        first.startswith("-")
        or first in COMMANDS
        or any(first in each for each in ALIASES.values())
    )


def offered_command(name: str) -> Offered:
    """The command of that name in the group `distcore.commands`. Raises UserError if there is
    none."""
    import difflib

    from distcore.cli import ludwig_flags
    from distcore_core.contracts import COMMAND
    from distcore_core.errors import UserError
    from distcore_core.registry.manager import Plugins

    plugins = Plugins()
    if name in BY_PLUGINS or name in plugins.names(COMMAND.kind):
        return Offered(name, plugins.make(COMMAND, name))
    known = [*COMMANDS, *(each for alias in ALIASES.values() for each in alias), *BY_PLUGINS]
    known += [each for each in plugins.names(COMMAND.kind) if each not in known]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Commands: {', '.join(known)}."
    if name in ludwig_flags.COMMANDS:
        hint = f"It is Ludwig's; here {ludwig_flags.COMMANDS[name]}."
    raise UserError(f"There is no command {name!r}. {hint}")
