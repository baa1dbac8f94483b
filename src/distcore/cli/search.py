"""The command `hyperopt`."""

from __future__ import annotations

from argparse import Namespace

from distcore.cli.arguments import config_of, data_of, set_up_logging, shown, skips_of


def hyperopt(arguments: Namespace) -> int:
    """Search the space of the config's hyperopt section, and print the trials, best first."""
    from distcore.cli.table import table
    from distcore.search import run
    from distcore.search.outcome import rows

    set_up_logging(arguments.logging_level)
    outcome = run.hyperopt(
        config_of(arguments),
        **data_of(arguments),
        backend=arguments.backend,
        random_seed=arguments.random_seed,
        gpus=arguments.gpus,
        output_directory=arguments.output_directory,
        experiment_name=arguments.experiment_name,
        model_name=arguments.model_name,
        model_resume_path=arguments.model_resume_path,
        resume=arguments.resume,
        skip=skips_of(arguments),
        view=shown(arguments.logging_level),
    )
    print(table(rows(outcome.trials, outcome.metric)))
    print(outcome.model if outcome.model is not None else outcome.directory)
    return 0
