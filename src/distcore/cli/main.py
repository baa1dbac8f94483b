"""The command line. Parsing costs a few milliseconds; each command imports what it needs when it is
called.

Exit codes: 0 done, 2 the user's input or config is wrong, 128 + the signal that stopped it (130:
ctrl-C, 143: SIGTERM), 1 anything else. Errors go to stderr, without a traceback unless `--debug` is
given. `commands.py` has the commands, `command_flags.py` their options.
"""

from __future__ import annotations

import argparse
import atexit
import codecs
import errno
import gc
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from distcore.cli import ludwig_flags
from distcore.cli.commands import (
    ALIASES,
    BY_PLUGINS,
    COMMANDS,
    Offered,
    asks_for_all,
    is_own,
    offered_command,
)

if TYPE_CHECKING:
    from distcore_core.contracts import Command

DATA = ("dataset", "training_set", "validation_set", "test_set")
"""Options that name rows, one of which a word without an option may stand for."""

OF_PYTHON = ("strict", "surrogateescape")
"""What Python does by itself with characters that an encoding lacks; the user chose any other."""


def main(arguments: Sequence[str] | None = None, to_the_end: bool = False) -> int:
    """Run one command; returns the exit code. to_the_end: nothing but the end of this process
    follows."""
    _collect_seldom()
    _sleep_soon()
    if to_the_end:
        _spell_out()
        _write_all()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if is_own(words):
        parsed = parse(build_parser(listed=asks_for_all(words)), words)
        return _guard(parsed.run, parsed, to_the_end)

    def run(_: argparse.Namespace) -> int:
        parsed = parse(build_parser(offered_command(words[0])), words)
        return parsed.run(parsed)

    return _guard(run, argparse.Namespace(debug="--debug" in words), to_the_end)


def _collect_seldom() -> None:
    """Modules are no garbage: looking through them time and again, and twice at the end, takes
    0.3 s with torch. What `preprocess` imports are some 100,000 objects."""
    gc.set_threshold(200_000, 20, 50)
    atexit.register(gc.freeze)


def _sleep_soon() -> None:
    """Let idle threads of OpenBLAS, which numpy brings, wait in a loop for 2**16 ticks and not for
    0.1 s, which they do once numpy is imported; what they compute is the same. What the user has
    set stays."""
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "16")


def _spell_out() -> None:
    """Let standard output spell out what its encoding has no bytes for, as standard error does: the
    last line of a run that is whole must not make an error of it. Of a path that is no text come
    the bytes that it has."""

    def spelled(error: UnicodeError) -> tuple[str | bytes, int]:
        try:
            return codecs.lookup_error("surrogateescape")(error)
        except UnicodeError:
            return codecs.backslashreplace_errors(error)

    codecs.register_error("distcore.spelled", spelled)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in OF_PYTHON:
        sys.stdout.reconfigure(errors="distcore.spelled")


class _Whole(io.FileIO):
    """A file that takes all of a text, or raises."""

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        while left:
            count = super().write(left)
            if count is None:
                raise BlockingIOError(errno.EAGAIN, "it would block")
            left = left[count:]
        return len(data)


def _write_all() -> None:
    """Under PYTHONUNBUFFERED Python hands the system a text once, and forgets what a disk that is
    nearly full does not take of it, without an error."""
    given = sys.stdout
    if isinstance(given, io.TextIOWrapper) and isinstance(given.buffer, io.RawIOBase):
        whole = _Whole(given.fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(whole, given.encoding, given.errors, write_through=True)


def _guard(run: Callable[[Any], int], parsed: argparse.Namespace, to_the_end: bool = False) -> int:
    """Call the command, which signals may stop; turn what it raises into a message and an exit
    code."""
    # Light modules, but --help has no need of them.
    from distcore.workflow.working_directory import check_working_directory
    from distcore_torch.signals import Stoppable

    stopping = Stoppable(owns_process=True, to_the_end=to_the_end)
    with ExitStack() as stack:
        try:
            stopping = stack.enter_context(stopping)  # its thread may be one too many
            try:
                check_working_directory()
                return run(parsed)
            finally:
                stopping.settle()
        except (Exception, KeyboardInterrupt) as error:
            if getattr(parsed, "debug", False):
                raise
            code, stopping.last_line = _told(error, stopping.received)
            return code


def _told(error: BaseException, received: int) -> tuple[int, str]:
    """Say on stderr what ended a command.

    Args:
        error: It.
        received: The signal that came before, or 0.

    Returns:
        The exit code, and the line that says most.
    """
    from distcore_core.errors import DistcoreError, Diverged
    from distcore_torch.signals import named, signal_of

    if isinstance(error, BrokenPipeError):  # perhaps `distcore plugins | head`
        unread = [each for each in (sys.stdout, sys.stderr) if _nobody_reads(each)]
        for each in unread:  # Python must not complain at exit either
            os.dup2(os.open(os.devnull, os.O_WRONLY), each.fileno())
        if unread:
            return 1, ""
    if isinstance(error, KeyboardInterrupt) or (received and not isinstance(error, Diverged)):
        # Whatever else goes wrong after a signal is its consequence: what was started here got it,
        # too.
        number = received or signal_of(error)
        said = f"distcore: stopped by {named(number)}. {error}".rstrip()
        _say(said)
        return 128 + number, said
    if isinstance(error, DistcoreError):
        _say(said := f"distcore: {error}")
        return error.exit_code, said
    from distcore.cli.requirements import missing_requirement

    if words := missing_requirement(error):  # before what needs numpy is imported
        _say(said := f"distcore: {words}")
        return 1, said
    from distcore_data.blame import notes_of
    from distcore_data.memory import limit_in_words
    from distcore_data.os_errors import NO_PATH, in_words

    if words := in_words(error):
        _say(said := f"distcore: {words}")
        return 2 if getattr(error, "errno", None) in NO_PATH else 1, said
    _say(said := f"distcore: {type(error).__name__}: {error}")
    for note in filter(None, (*notes_of(error), limit_in_words())):
        _say(f"distcore: {note}")
    _say("distcore: this was not expected; run again with --debug for the traceback.")
    return 1, said


def _nobody_reads(stream: TextIO) -> bool:
    """Whether it is a pipe, or a socket, whose reader is gone."""
    import select

    poll = select.poll()
    try:
        poll.register(stream, 0)
    except (TypeError, ValueError, OSError):  # there is none, or it is closed, or no file
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _say(line: str) -> None:
    """By one write: another thread's line may stand between the two of `print`."""
    from distcore_data.printable import printable

    sys.stderr.write(printable(line, keep="\n\t") + "\n")


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


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """What the words say; `run` carries it out. Ends the process for words that no command
    knows, and for none."""
    command = _innermost(parser, words)
    unsupported = ludwig_flags.not_carried_out(words, known=command._option_string_actions)
    if unsupported is not None:
        command.error(unsupported)
    parsed, left = parser.parse_known_args(words)
    left = _without_names(left, parsed)
    if left:
        _refuse(left, command)
    if not getattr(parsed, "run", None):
        parser.print_help()
        parser.exit(2)
    return parsed


def _without_names(words: list[str], parsed: argparse.Namespace) -> list[str]:
    """The words without those that `distcore train config.yaml data.csv` and `distcore predict
    results/experiment_run new.csv` name without an option, which go into what was parsed: a config
    or a model, then a dataset; of `distcore cache list s3://bucket/caches` where caches lie."""
    if any(word.startswith("-") and word != "-" for word in words):
        return words
    left, options = list(words), vars(parsed)
    if (
        left
        and "config_str" in options
        and not parsed.config
        and not parsed.config_str
        and left[0].endswith((".yaml", ".yml", ".json"))
    ):
        parsed.config = left.pop(0)
    if left and options.get("model_path", "") is None:
        parsed.model_path = left.pop(0)
    given = [options.get(name) for name in DATA]
    of_caches = options.get("cache_dir", "") is None and not any(given)
    if left and of_caches and not _names_rows(left[0]):
        parsed.cache_dir = left.pop(0)
        return left
    if left and "dataset" in options and not any(given):
        parsed.dataset = left.pop(0)
    return left


def _names_rows(word: str) -> bool:
    """Whether a word that may name the place of caches names the rows beside which they lie: those
    may be gone, or be a pattern's."""
    has_ending = os.path.splitext(word)[1] != "" and "://" not in word
    return os.path.isfile(word) or (has_ending and not os.path.isdir(word))


def _refuse(words: Sequence[str], command: argparse.ArgumentParser) -> NoReturn:
    """End for words that the command does not know."""
    import difflib

    known = [option for action in command._actions for option in action.option_strings]
    first = next((word.partition("=")[0] for word in words if word.startswith("-")), words[0])
    if not first.startswith("-"):
        gpus = "; several GPUs are one word, --gpus 0,1" if first.isdigit() else ""
        command.error(f"{first!r} is one word too many{gpus if '--gpus' in known else ''}")
    # `--seed` is a word of --random_seed, though --set is spelled more like it.
    near = [
        each for each in known if first.removeprefix("--") in each.removeprefix("--").split("_")
    ]
    if not 0 < len(near) <= 2:
        near = difflib.get_close_matches(first, known, n=1)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    if "--set" in known:
        hint = _of_config(first, words) or hint
    command.error(f"{command.prog} has no option {first}.{hint}")


def _of_config(option: str, words: Sequence[str]) -> str:
    """How to give an option of the config, such as `--epochs 5`; empty for what is none."""
    from distcore.config.overrides import belongs_to

    path = belongs_to(option.lstrip("-").replace("-", "_"))
    if path is None:
        return ""
    said = [word for word in words if word.startswith(f"{option}=")]
    value = said[0].partition("=")[2] if said else next(iter(words[words.index(option) + 1 :]), "…")
    return f" It is the config's: write --set {path}={'…' if value.startswith('-') else value}."


def build_parser(offered: Offered | None = None, listed: bool = False) -> Parser:
    """The parser of every command of our own, and of one that a plugin offers.

    listed: whether the commands of other plugins are told of, too."""
    parser = Parser(
        prog="distcore",
        description="One config, any engine, the same bits: preprocess, train, evaluate, predict "
        "from one YAML file.",
        epilog="`distcore COMMAND --help` tells a command's options. `distcore plugins` lists all "
        "that plugins offer.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and leave")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    told: list[tuple[str, Command | None, str]] = [
        (name, each, each.help) for name, each in COMMANDS.items()
    ]
    told += [
        (name, None, text)
        for name, text in BY_PLUGINS.items()
        if offered is None or name != offered.name
    ]
    if offered is not None:
        told.append((offered.name, offered.command, offered.command.help))
    if listed:
        from distcore.cli.of_others import commands_of_others

        told += [
            (name, None, text)
            for name, text in commands_of_others({*COMMANDS, *BY_PLUGINS}).items()
        ]
    for name, command, text in told:
        aliases = ALIASES.get(name, [])
        inner = commands.add_parser(
            name, aliases=aliases, help=text, description=text, allow_abbrev=False
        )
        if command is not None:
            inner.add_argument("--debug", action="store_true", help="show tracebacks")
            command.add_arguments(inner)
            inner.formatter_class = argparse.RawDescriptionHelpFormatter
            inner.set_defaults(run=command.run)
    return parser


class _Version(argparse.Action):
    """Print the version, read from metadata only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from distcore.installed import __version__

        print(f"distcore {__version__}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main(to_the_end=True))
