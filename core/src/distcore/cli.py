"""The command line. Parsing costs a few milliseconds; each command imports what it needs when it is called.

Exit codes: 0 done, 2 the user's input or config is wrong, 1 anything else. Errors go to stderr, without a traceback
unless `--debug` is given. Every flag may be spelt with underscores (Ludwig's way) or dashes.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distcore.plugins import Plugins

INTERRUPTED = 130
"""Exit code after ctrl-C, as shells expect (128 + SIGINT)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    _collect_seldom()
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser, unknown = build_parser(words)
    if unknown is not None:
        return _guard(lambda _: _plugin_command(unknown, words[1:]), argparse.Namespace(debug="--debug" in words))
    parsed = parser.parse_args(words)
    if not getattr(parsed, "run", None):
        parser.print_help()
        return 2
    return _guard(parsed.run, parsed)


def _collect_seldom() -> None:
    """Modules are no garbage: looking through them time and again, and twice at the end, takes 0.3 s with torch."""
    gc.set_threshold(100_000, 20, 50)
    atexit.register(gc.freeze)


def _guard(run: Callable[[Any], int], parsed: argparse.Namespace) -> int:
    """Call the command; turn what it raises into a message and an exit code."""
    # The hierarchy is a light module, but a run that goes well has no need of it before this point.
    from distcore.errors import DistcoreError

    try:
        return run(parsed)
    except KeyboardInterrupt as interrupt:
        if getattr(parsed, "debug", False):
            raise
        print(f"distcore: stopped by ctrl-C. {interrupt}".rstrip(), file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`distcore plugins | head`); Python must not complain at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except DistcoreError as error:
        if getattr(parsed, "debug", False):
            raise
        print(f"distcore: {error}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        if getattr(parsed, "debug", False):
            raise
        print(f"distcore: {type(error).__name__}: {error}", file=sys.stderr)
        print("distcore: this was not expected; run again with --debug for the traceback.", file=sys.stderr)
        return 1


# ------------------------------------------------------------------ the parser


def build_parser(words: Sequence[str]) -> tuple[argparse.ArgumentParser, str | None]:
    """The parser, and the name of the command when it is none of ours (a plugin may offer it)."""
    parser = argparse.ArgumentParser(
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


def _flag(parser: Any, name: str, *short: str, **options: Any) -> None:
    """Add `--some_name` and `--some-name` as one option."""
    dashed = name.replace("_", "-")
    parser.add_argument(*short, f"--{name}", *([f"--{dashed}"] if dashed != name else []), dest=name, **options)


def _config_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("config")
    _flag(group, "config", "-c", metavar="FILE", help="the YAML config")
    _flag(group, "config_str", "-cs", metavar="YAML", help="the config as text")
    _flag(group, "backend", metavar="NAME", help="where to run; overrides the config")
    _flag(group, "random_seed", "-rs", type=int, metavar="N", help="seed of every random number (default: 42)")
    _flag(group, "logging_level", "-l", default="info", metavar="LEVEL", help="critical, error, warning, info or debug")


def _data_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("data")
    _flag(
        group,
        "dataset",
        metavar="PATH",
        help="dataset to be split: csv, tsv, parquet, json lines, feather; path or URL",
    )
    _flag(group, "training_set", metavar="PATH", help="training set, where the split is given")
    _flag(group, "validation_set", metavar="PATH", help="validation set")
    _flag(group, "test_set", metavar="PATH", help="test set")
    _flag(group, "data_format", metavar="FORMAT", help="auto (default), csv, tsv, parquet, jsonl, feather")


def _output_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("results")
    _flag(group, "output_directory", "-od", default="results", metavar="DIR", help="default: results")
    _flag(group, "experiment_name", default="experiment", metavar="NAME")
    _flag(group, "model_name", default="run", metavar="NAME")


def _skip_flags(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    group = parser.add_argument_group("what not to save")
    for name, what in _SKIPS.items():
        if name in names:
            _flag(group, name, action="store_true", help=f"do not save {what}")


_SKIPS = {
    "skip_save_training_description": "description.json",
    "skip_save_training_statistics": "training_statistics.json",
    "skip_save_model": "the model",
    "skip_save_progress": "checkpoints; a run that is stopped cannot be resumed",
    "skip_save_log": "what extensions log",
    "skip_save_processed_input": "the cache; it is removed when the run ends",
    "skip_save_predictions": "predictions.parquet",
    "skip_save_eval_stats": "test_statistics.json",
    "skip_save_report": "report.html",
    "skip_save_hyperopt_statistics": "hyperopt_statistics.json and the report",
}


def _train_flags(parser: argparse.ArgumentParser) -> None:
    _config_flags(parser)
    _data_flags(parser)
    _output_flags(parser)
    group = parser.add_argument_group("model")
    _flag(group, "model_load_path", "-mlp", metavar="DIR", help="start from the weights of this model")
    _flag(group, "model_resume_path", "-mrp", metavar="DIR", help="go on with the run in this experiment folder")
    _flag(group, "gpus", "-g", metavar="LIST", help="GPUs to use, such as 0 or 0,1; -1 for none")
    _skip_flags(parser, [name for name in _SKIPS if name != "skip_save_hyperopt_statistics"])


def _hyperopt_flags(parser: argparse.ArgumentParser) -> None:
    _config_flags(parser)
    _data_flags(parser)
    group = parser.add_argument_group("results")
    _flag(group, "output_directory", "-od", default="results", metavar="DIR", help="default: results")
    _flag(group, "experiment_name", default="hyperopt", metavar="NAME", help="default: hyperopt")
    _flag(group, "model_name", default="run", metavar="NAME")
    group = parser.add_argument_group("search")
    _flag(group, "model_resume_path", "-mrp", metavar="DIR", help="go on with the search in this folder")
    _flag(group, "resume", action="store_true", help="go on with the search that lies where this one would, if any")
    _flag(group, "gpus", "-g", metavar="LIST", help="GPUs to use, such as 0 or 0,1; -1 for none")
    skips = [name for name in _SKIPS if name != "skip_save_predictions"]
    _skip_flags(parser, ["skip_save_hyperopt_statistics", *skips])


def _model_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    _flag(group, "model_path", "-m", required=True, metavar="DIR", help="the model folder, or the experiment's folder")
    _flag(group, "trust", action="store_true", help="run the model's own class even from outside installed plugins")
    _flag(group, "batch_size", "-bs", type=int, metavar="N", help="rows of a batch")
    _flag(group, "gpus", "-g", metavar="LIST", help="GPUs to use; -1 for none")
    _flag(group, "backend", metavar="NAME", help="where to run (default: what is detected, else local)")
    _flag(group, "logging_level", "-l", default="info", metavar="LEVEL")
    _flag(group, "output_directory", "-od", default="results", metavar="DIR", help="default: results")
    data = parser.add_argument_group("data")
    _flag(data, "dataset", required=True, metavar="PATH", help="the rows to read")
    _flag(data, "data_format", metavar="FORMAT", help="auto (default), csv, tsv, parquet, jsonl, feather")


def _predict_flags(parser: argparse.ArgumentParser) -> None:
    _model_flags(parser)
    _skip_flags(parser, ["skip_save_predictions", "skip_save_log"])


def _evaluate_flags(parser: argparse.ArgumentParser) -> None:
    _model_flags(parser)
    _skip_flags(parser, ["skip_save_predictions", "skip_save_eval_stats", "skip_save_log"])


def _preprocess_flags(parser: argparse.ArgumentParser) -> None:
    _config_flags(parser)
    _data_flags(parser)


def _plan_flags(parser: argparse.ArgumentParser) -> None:
    _config_flags(parser)
    _data_flags(parser)
    _flag(parser, "json", action="store_true", help="print JSON")
    _flag(parser, "gpus", "-g", metavar="LIST", help="GPUs to use; -1 for none")


def _init_flags(parser: argparse.ArgumentParser) -> None:
    _flag(parser, "dataset", required=True, metavar="PATH", help="the data to look at")
    _flag(
        parser,
        "target",
        "-t",
        required=True,
        action="append",
        metavar="COLUMN",
        help="what to predict; may be given again",
    )
    _flag(parser, "output", "-o", metavar="FILE", help="where to write; default: standard output")
    _flag(parser, "data_format", metavar="FORMAT")


def _plugins_flags(parser: argparse.ArgumentParser) -> None:
    _flag(parser, "json", action="store_true", help="print JSON, an object a row")
    _flag(parser, "timeout", type=float, default=10.0, metavar="SECONDS", help="deadline for one plugin's import")


def _doctor_flags(parser: argparse.ArgumentParser) -> None:
    _flag(parser, "json", action="store_true", help="print JSON")


def _schema_flags(parser: argparse.ArgumentParser) -> None:
    _flag(parser, "output", "-o", metavar="FILE", help="where to write; default: standard output")


def _report_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="the experiment's folder")
    _flag(parser, "output", "-o", metavar="FILE", help="default: report.html in that folder")


# ------------------------------------------------------------------ the commands


def _handler(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """A command's body in `distcore.commands.<module>`, imported when it is called."""

    def run(arguments: argparse.Namespace) -> int:
        from importlib import import_module

        return getattr(import_module(f"distcore.commands.{module}"), function)(arguments)

    return run


_COMMANDS: list[tuple[str, list[str], str, Callable[[argparse.ArgumentParser], None], Callable[[Any], int]]] = [
    ("experiment", [], "train, then evaluate and predict the test split", _train_flags, _handler("work", "experiment")),
    ("train", [], "preprocess and fit a model", _train_flags, _handler("work", "train")),
    ("hyperopt", [], "search the space of the hyperopt section", _hyperopt_flags, _handler("search", "hyperopt")),
    ("preprocess", [], "build the cache and stop", _preprocess_flags, _handler("work", "preprocess")),
    ("evaluate", ["test"], "metrics of a model on a dataset", _evaluate_flags, _handler("work", "evaluate")),
    ("predict", [], "predictions of a model on a dataset", _predict_flags, _handler("work", "predict")),
    ("plan", [], "say what would run, where, through which plugins and why", _plan_flags, _handler("look", "plan")),
    ("init", [], "write a commented config by looking at data", _init_flags, _handler("look", "init")),
    ("plugins", [], "list the installed plugins and their state", _plugins_flags, _handler("look", "plugins")),
    ("doctor", [], "check the machine and each plugin's parts", _doctor_flags, _handler("look", "doctor")),
    ("schema", [], "print the JSON Schema of what is installed", _schema_flags, _handler("look", "schema")),
    ("report", [], "write report.html from an experiment's folder", _report_flags, _handler("look", "report")),
]


def _plugin_command(name: str, words: Sequence[str]) -> int:
    """A command that a plugin offers in the group `distcore.commands`."""
    import difflib

    from distcore.errors import UserError
    from distcore.plugins import Plugins

    plugins: Plugins = Plugins()
    if name not in plugins.names("commands"):
        known = [each for entry in _COMMANDS for each in (entry[0], *entry[1])] + plugins.names("commands")
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Commands: {', '.join(known)}."
        raise UserError(f"There is no command {name!r}. {hint}")
    command = plugins.make("commands", name)
    parser = argparse.ArgumentParser(prog=f"distcore {name}", description=command.help, allow_abbrev=False)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    command.add_arguments(parser)
    return command.run(parser.parse_args(list(words)))


if __name__ == "__main__":
    sys.exit(main())
