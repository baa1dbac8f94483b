"""The command `hyperopt`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from distcore.cli import flags
from distcore.cli.arguments import run_of, set_up_logging
from distcore.workflow.skips import SKIP_HYPEROPT_STATISTICS, SKIP_PREDICTIONS, SKIPS


class HyperoptCommand:
    """`distcore hyperopt`."""

    help = "search the space of the hyperopt section"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Its options."""
        flags.config(parser)
        flags.data(parser)
        group = parser.add_argument_group("results")
        flags.flag(
            group,
            "output_directory",
            "-od",
            default="results",
            metavar="DIR",
            help="default: results",
        )
        flags.flag(
            group, "experiment_name", default="hyperopt", metavar="NAME", help="default: hyperopt"
        )
        flags.flag(group, "model_name", default="run", metavar="NAME")
        group = parser.add_argument_group("search")
        flags.flag(
            group,
            "model_resume_path",
            "-mrp",
            metavar="DIR",
            help="go on with the search in this folder",
        )
        flags.flag(
            group,
            "resume",
            action="store_true",
            help="go on with the search that lies where this one would, if any",
        )
        flags.gpus(group)
        flags.profile(parser)
        skips = [name for name in SKIPS if name != SKIP_PREDICTIONS]
        flags.skip(parser, [SKIP_HYPEROPT_STATISTICS, *skips])

        flags.examples(
            parser,
            "hyperopt config.yaml data.csv",
            "hyperopt config.yaml data.csv --set hyperopt.goal=minimize",
        )

    def run(self, arguments: Namespace) -> int:
        """Search the space of the config's hyperopt section, and print the trials, best first."""
        from distcore.search import run
        from distcore.search.outcome import rows
        from distcore.workflow.profile import profiled
        from distcore_data.table import table

        set_up_logging(arguments.logging_level)
        with profiled("hyperopt", arguments.profile):
            outcome = run.hyperopt(**run_of(arguments), resume=arguments.resume)
        print(table(rows(outcome.trials, outcome.metric)))
        print(outcome.model if outcome.model is not None else outcome.directory)
        return 0
