"""The command line. Parsing costs a few milliseconds; each command imports what it needs when it is called.

Exit codes: 0 done, 2 the user's input or config is wrong, 128 + the signal that stopped it (130: ctrl-C, 143: SIGTERM),
1 anything else. Errors go to stderr, without a traceback unless `--debug` is given. `flags.py` has the options.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from distcore.cli import flags
from distcore_core.contracts import COMMAND

if TYPE_CHECKING:
    from distcore_core.registry.manager import Plugins


def main(arguments: Sequence[str] | None = None, to_the_end: bool = False) -> int:
    """Run one command; returns the exit code. to_the_end: nothing but the end of this process follows."""
    _collect_seldom()
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser, unknown = build_parser(words)
    if unknown is not None:
        debug = argparse.Namespace(debug="--debug" in words)
        return _guard(lambda _: _plugin_command(unknown, words[1:]), debug, to_the_end)
    command, unsupported = _innermost(parser, words), flags.not_carried_out(words)
    if unsupported is not None:
        command.error(unsupported)
    parsed, left = parser.parse_known_args(words)
    if left:
        _refuse(left, command)
    if not getattr(parsed, "run", None):
        parser.print_help()
        return 2
    return _guard(parsed.run, parsed, to_the_end)


def _collect_seldom() -> None:
    """Modules are no garbage: looking through them time and again, and twice at the end, takes 0.3 s with torch."""
    gc.set_threshold(100_000, 20, 50)
    atexit.register(gc.freeze)


def _guard(run: Callable[[Any], int], parsed: argparse.Namespace, to_the_end: bool = False) -> int:
    """Call the command, which signals may stop; turn what it raises into a message and an exit code."""
    # Light modules, but --help has no need of them.
    from distcore_core.signals import Stoppable

    with Stoppable(owns_process=True, to_the_end=to_the_end) as stopping:
        try:
            try:
                return run(parsed)
            finally:
                stopping.settle()
        except (Exception, KeyboardInterrupt) as error:
            if getattr(parsed, "debug", False):
                raise
            return _told(error, stopping.received)


def _told(error: BaseException, received: int) -> int:
    """Say on stderr what ended a command; its exit code. received: the signal that came before, or 0."""
    from distcore_core.errors import DistcoreError, Diverged
    from distcore_core.signals import named, signal_of

    if isinstance(error, BrokenPipeError):
        # The reader of our output went away (`distcore plugins | head`); Python must not complain at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, KeyboardInterrupt) or (received and not isinstance(error, Diverged)):
        # Whatever else goes wrong after a signal is its consequence: what was started here got it, too.
        number = received or signal_of(error)
        print(f"distcore: stopped by {named(number)}. {error}".rstrip(), file=sys.stderr)
        return 128 + number
    if isinstance(error, DistcoreError):
        print(f"distcore: {error}", file=sys.stderr)
        return error.exit_code
    print(f"distcore: {type(error).__name__}: {error}", file=sys.stderr)
    print("distcore: this was not expected; run again with --debug for the traceback.", file=sys.stderr)
    return 1


# ------------------------------------------------------------------ the parser


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every other error is said."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        end = "" if message[-1] in ".?" else "."
        self.exit(2, f"distcore: {message}{end} See `{self.prog} --help`.\n")


def _innermost(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command, or of its action, that the words begin with."""
    inner = (action.choices for action in parser._actions if isinstance(action.choices, dict))
    found = {name: each for choices in inner for name, each in choices.items()}
    return _innermost(found[words[0]], words[1:]) if words and words[0] in found else parser


def _refuse(words: Sequence[str], command: argparse.ArgumentParser) -> NoReturn:
    """End for words that the command does not know."""
    import difflib

    known = [option for action in command._actions for option in action.option_strings]
    first = next((word.partition("=")[0] for word in words if word.startswith("-")), words[0])
    if not first.startswith("-"):
        command.error(f"{first!r} is one word too many")
    near = difflib.get_close_matches(first, known, n=1)
    command.error(f"{command.prog} has no option {first}.{f' Did you mean {near[0]}?' if near else ''}")


def build_parser(words: Sequence[str]) -> tuple[Parser, str | None]:
    """The parser, and the name of the command when it is none of ours (a plugin may offer it)."""
    parser = Parser(
        prog="distcore",
        description="One config, any engine, the same bits: preprocess, train, evaluate, predict from one YAML file.",
        epilog="`distcore COMMAND --help` tells a command's options.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and leave")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, aliases, help_text, fill, run in _COMMANDS:
        command = commands.add_parser(name, aliases=aliases, help=help_text, description=help_text, allow_abbrev=False)
        command.add_argument("--debug", action="store_true", help="show tracebacks")
        fill(command)
        command.set_defaults(run=run)
    known = {name for each in _COMMANDS for name in (each[0], *each[1])}
    first = words[0] if words else ""
    return parser, first if first and not first.startswith("-") and first not in known else None


class _Version(argparse.Action):
    """Print the version, read from metadata only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from importlib.metadata import version

        print(f"distcore {version('distcore')}")
        parser.exit()


# ------------------------------------------------------------------ the commands


def _handler(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """A command's body in `distcore.cli.<module>`, imported when it is called."""

    def run(arguments: argparse.Namespace) -> int:
        from importlib import import_module

        return getattr(import_module(f"distcore.cli.{module}"), function)(arguments)

    return run


_COMMANDS: list[tuple[str, list[str], str, Callable[[argparse.ArgumentParser], None], Callable[[Any], int]]] = [
    ("experiment", [], "train, then evaluate and predict the test split", flags.train, _handler("train", "experiment")),
    ("train", [], "preprocess and fit a model", flags.train, _handler("train", "train")),
    ("hyperopt", [], "search the space of the hyperopt section", flags.hyperopt, _handler("search", "hyperopt")),
    ("preprocess", [], "build the cache and stop", flags.preprocess, _handler("train", "preprocess")),
    ("evaluate", ["test"], "metrics of a model on a dataset", flags.evaluate, _handler("train", "evaluate")),
    ("predict", [], "predictions of a model on a dataset", flags.predict, _handler("train", "predict")),
    ("plan", [], "say what would run, where, through which plugins and why", flags.plan, _handler("inspect", "plan")),
    ("init", [], "write a commented config by looking at data", flags.init, _handler("inspect", "init")),
    ("plugins", [], "list the installed plugins and their state", flags.plugins, _handler("inspect", "plugins")),
    ("doctor", [], "check the machine and each plugin's parts", flags.doctor, _handler("inspect", "doctor")),
    ("schema", [], "print the JSON Schema of what is installed", flags.schema, _handler("inspect", "schema")),
    ("report", [], "write report.html from an experiment's folder", flags.report, _handler("inspect", "report")),
    ("cache", [], "list, verify and prune the caches of a folder or bucket", flags.cache, _handler("cache", "cache")),
]


def _plugin_command(name: str, words: Sequence[str]) -> int:
    """A command that a plugin offers in the group `distcore.commands`."""
    import difflib

    from distcore_core.errors import UserError
    from distcore_core.registry.manager import Plugins

    plugins: Plugins = Plugins()
    if name not in plugins.names("commands"):
        known = [each for entry in _COMMANDS for each in (entry[0], *entry[1])] + plugins.names("commands")
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Commands: {', '.join(known)}."
        raise UserError(f"There is no command {name!r}. {hint}")
    command = plugins.make(COMMAND, name)
    parser = Parser(prog=f"distcore {name}", description=command.help, allow_abbrev=False)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    command.add_arguments(parser)
    return command.run(parser.parse_args(list(words)))


if __name__ == "__main__":
    sys.exit(main(to_the_end=True))
